# SPDX-License-Identifier: Apache-2.0
"""The programs under examples/ run, and print what they promise.

May not: import them: a reader starts them as programs, and so do these tests.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import oncemq

EXAMPLES = Path(__file__).parents[2] / "examples"


def _run(name: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_client_in_another_language_can_be_written_from_the_pages(tmp_path: Path) -> None:
    tree = ast.parse((EXAMPLES / "another_language.py").read_text())
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert not any(name.startswith("oncemq") for name in imported)
    with oncemq.Broker(tmp_path / "data") as broker:
        assert _run("another_language.py", broker.address) == "0 one\n1 two\n2 three\n"
        with oncemq.connect(broker.address) as client:
            client.subscribe("example.plain", start="earliest")
            assert [message.value for message in client.get_many("example.plain", 3, timeout=10)] == [b"one", b"two", b"three"]


def test_a_web_service_serves_many_handlers_with_one_client(tmp_path: Path) -> None:
    with oncemq.Broker(tmp_path / "data") as broker:
        assert _run("web_service.py", broker.address, str(tmp_path / "web")) == "[0, 1, 2]\n['cake', 'milk', 'tea']\n"


def test_a_bank_books_every_payment_once_however_often_it_is_started(tmp_path: Path) -> None:
    with oncemq.Broker(tmp_path / "data") as broker, oncemq.connect(broker.address) as client:
        client.admin.create_topic("payments", retain="forever")
        client.put_many("payments", [b"alice 100", b"bob 20", b"alice -30"])
        for _ in range(2):
            assert _run("bank.py", broker.address, str(tmp_path / "bank")) == "alice 70\nbob 20\n"


def test_every_example_is_run_by_a_test_here() -> None:
    here = Path(__file__).read_text()
    assert [path.name for path in sorted(EXAMPLES.glob("*.py")) if f'_run("{path.name}"' not in here] == []
