# SPDX-License-Identifier: Apache-2.0
"""The front door: what `import oncemq` offers, and that the reference says the same.

May not: name the public names itself: `oncemq.__all__` is where they are written.
The idea: whatever is not in `__all__` may change at any time. A heading `oncemq.NAME` in the reference documents NAME.
Next: test_documented.py.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import pytest

from tests.tidy.source import DOCS

HEADING = re.compile(r"^#{2,4} .*?`?oncemq\.([A-Za-z_]\w*)", flags=re.MULTILINE)


def documented_in(text: str) -> set[str]:
    return set(HEADING.findall(text))


def _reference() -> str | None:
    """The reference, as one file or as a folder of files; None while there is none."""
    paths = [path for path in [DOCS / "reference.md", *sorted((DOCS / "reference").glob("*.md"))] if path.is_file()]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths) if paths else None


def test_every_public_name_can_be_imported() -> None:
    oncemq = importlib.import_module("oncemq")
    assert oncemq.__all__
    assert [name for name in oncemq.__all__ if not hasattr(oncemq, name)] == []


def test_a_name_that_does_not_exist_is_an_error() -> None:
    oncemq = importlib.import_module("oncemq")
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = oncemq.nonsense
    assert set(oncemq.__all__) <= set(dir(oncemq))


@pytest.mark.parametrize("program", ["import oncemq", "import oncemq.cli.main"])
def test_nothing_is_loaded_that_was_not_asked_for(program: str) -> None:
    """`oncemq --help` must not wait for ZeroMQ, a broker or a simulator."""
    look = f"{program}; import sys; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True).stdout.split()
    heavy = {"zmq", "rich.markdown", "numpy", "pyspark", "oncemq.client.client", "oncemq.core.broker", "oncemq.sim.world"}
    assert heavy & set(loaded) == set()


def test_no_public_name_is_listed_twice() -> None:
    names = importlib.import_module("oncemq").__all__
    assert len(names) == len(set(names))


def test_the_front_door_offers_what_the_design_promises() -> None:
    promised = {"connect", "Broker", "Client", "Message", "Receipt", "OnceMQError"}
    assert promised - set(importlib.import_module("oncemq").__all__) == set()


def test_the_reference_documents_exactly_the_public_names() -> None:
    reference = _reference()
    if reference is not None:
        assert documented_in(reference) == set(importlib.import_module("oncemq").__all__)


def test_documented_names_are_read_from_headings_only() -> None:
    text = "# oncemq.ignored\n\n## `oncemq.connect(address)`\n\noncemq.not_this\n\n### class oncemq.Client\n"
    assert documented_in(text) == {"connect", "Client"}
