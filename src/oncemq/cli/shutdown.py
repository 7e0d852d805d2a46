# SPDX-License-Identifier: Apache-2.0
"""`oncemq shutdown`: stop the running broker cleanly, from anywhere.

May not: stop a broker that was started after this was asked: the start id is named.
Next: client/admin.py.
"""

from __future__ import annotations

import typer

from oncemq.cli.connecting import asking
from oncemq.cli.options import DEFAULT_ADDRESS, Address, Json
from oncemq.cli.output import output_of


def shutdown(context: typer.Context, address: Address = DEFAULT_ADDRESS, _json: Json = False) -> None:
    """Stop the broker cleanly. Everything confirmed is on its disk already; clients go on when it is back.

    oncemq shutdown
    oncemq shutdown --address tcp://127.0.0.1:7000
    """
    output = output_of(context)
    with asking(output, address) as client:
        client.admin.shutdown()
    output.result({"address": address, "stopping": True}, f"the broker at {address} is stopping")
