# SPDX-License-Identifier: Apache-2.0
"""Effects once: payments change balances in SQLite, and killing this program at any instant changes nothing about the sum.

Start it, kill it -9, start it again: each payment is booked once, because the balance and the place in the topic are committed
by the same transaction.

    python examples/bank.py tcp://127.0.0.1:5556 DIRECTORY
"""

import sqlite3
import sys
from pathlib import Path

import oncemq


def main(address: str, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    books = sqlite3.connect(directory / "books.db")
    books.execute("CREATE TABLE IF NOT EXISTS balance (account TEXT PRIMARY KEY, cents INTEGER)")
    books.commit()
    with oncemq.connect(address, id="bank", state=directory / "state") as client:
        client.subscribe("payments", start="earliest")
        booked = 1
        while booked:
            with client.transaction(books) as transaction:
                found = transaction.get_many("payments", 100, timeout=0.5)
                for message in found:
                    account, cents = message.value.decode().split()
                    books.execute(
                        "INSERT INTO balance VALUES (?, ?) ON CONFLICT (account) DO UPDATE SET cents = cents + excluded.cents",
                        (account, int(cents)),
                    )
            booked = len(found)
    for account, cents in books.execute("SELECT account, cents FROM balance ORDER BY account"):
        print(account, cents)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
