# SPDX-License-Identifier: Apache-2.0
"""Who may import whom, and what a room may not touch. docs/architecture.md says the same in prose.

May not: excuse anybody. There is no list of exceptions here.
The idea: imports go down only, and rooms on one line do not know each other. Then the pure rooms run in a simulator,
because there is no way for time, dice or files to get in but through ports.
Next: test_sizes.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.tidy.source import Source, package, snippet

LEAVES = ("errors", "limits", "ports", "crashpoints", "version")
LAW: tuple[tuple[str, ...], ...] = (
    ("__main__", "pyspark_oncemq"),
    ("cli",),
    ("lab",),
    ("pipeline",),
    ("__init__",),
    ("sim",),
    ("client",),
    ("engine", "adapters"),
    ("journal", "wire"),
    ("mesh",),
    ("core",),
    ("model",),
    LEAVES,
)
"""From top to bottom. `__init__` is the front door, `import oncemq`."""

LINE_OF = {room: line for line, rooms in enumerate(LAW) for room in rooms}
ONLY = {"adapters": {"model", *LEAVES}, "pyspark_oncemq": {"pipeline"}}
NEVER = {"sim": {"adapters"}}
ASSEMBLED = ("oncemq.client.connect", "oncemq.client.broker")
"""Where a client or broker is put together from real adapters: not for a simulated world."""
HOME_OF = {
    "zmq": {"adapters"},
    "greenlet": {"sim", "client"},
    "pyspark": {"pipeline", "lab", "pyspark_oncemq"},
    "pyarrow": {"pipeline", "lab"},
}

WORLD = frozenset(
    {
        "time",
        "datetime",
        "random",
        "secrets",
        "uuid",
        "os",
        "io",
        "pathlib",
        "socket",
        "threading",
        "asyncio",
        "logging",
        "zmq",
        "subprocess",
    }
)
PURE = ("model", "core", "mesh", "wire")
FORBIDDEN: dict[str, frozenset[str]] = {
    **dict.fromkeys(PURE, WORLD),
    "journal": frozenset({"os", "io", "pathlib", "time", "random", "logging"}),
    "engine": frozenset({"zmq", "os", "time", "random", "socket"}),
}
"""Modules of the world that these rooms may reach through ports only."""

QUIET = frozenset(FORBIDDEN)
UNSAFE_MODULES = frozenset({"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"})
UNSAFE_CALLS = frozenset({"eval", "exec", "compile", "__import__"})
ATTRIBUTE_CALLS = frozenset({"getattr", "setattr", "delattr"})


# --- rules ----------------------------------------------------------------------------------------


def imported(source: Source) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of every import, those inside functions and under TYPE_CHECKING included."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(source, node)
            # The full name tells a room (`from oncemq import errors`) from the front door (`from oncemq import connect`).
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parents = source.package.split(".")
    base = parents[: len(parents) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def _room_of(name: str) -> str | None:
    parts = name.split(".")
    if parts[0] != "oncemq":
        return parts[0] if parts[0] in LINE_OF else None
    return parts[1] if len(parts) > 1 and parts[1] in LINE_OF else "__init__"


def _is_downward(room: str, target: str) -> bool:
    if room == target:
        return True
    if target not in ONLY.get(room, {target}) or target in NEVER.get(room, ()):
        return False
    return LINE_OF[room] < LINE_OF[target]


def import_breaches(source: Source) -> list[str]:
    """Imports that go up or sideways."""
    room = source.room
    if room not in LINE_OF:
        return [f"{source.path}: there is no room {room!r} in the import law"]
    targets = ((line, name, _room_of(name)) for line, name in imported(source))
    return [
        f"{source.path}:{line}: {room} may not import {name}"
        for line, name, target in targets
        if target is not None and (not _is_downward(room, target) or (room == "sim" and name.startswith(ASSEMBLED)))
    ]


def world_breaches(source: Source) -> list[str]:
    """Modules that this room may not import at all: the world in pure rooms, pyzmq and pyspark outside their homes."""
    room, found = source.room, []
    for line, name in imported(source):
        top = name.split(".")[0]
        is_away = top in HOME_OF and room not in HOME_OF[top]
        if is_away or top in FORBIDDEN.get(room, ()) or top in UNSAFE_MODULES:
            found.append(f"{source.path}:{line}: {room} may not import {top}")
    return found


def call_breaches(source: Source) -> list[str]:
    """Calls that reach around the ports, run text as code, or let a name off the wire choose an attribute."""
    found = []
    for call in source.calls():
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        is_loud = name in {"open", "print", "input"} and source.room in QUIET
        is_chosen = name in ATTRIBUTE_CALLS and source.room in QUIET and not _has_literal_name(call)
        if is_loud or is_chosen or name in UNSAFE_CALLS:
            found.append(f"{source.path}:{call.lineno}: {source.room} may not call {name}()")
    return found


def _has_literal_name(call: ast.Call) -> bool:
    return len(call.args) > 1 and isinstance(call.args[1], ast.Constant)


def assert_breaches(source: Source) -> list[str]:
    """Assert statements: they vanish under `python -O`, `errors.invariant` does not."""
    lines = (node.lineno for node in ast.walk(source.tree) if isinstance(node, ast.Assert))
    return [f"{source.path}:{line}: use invariant() instead of assert" for line in lines]


# --- the tree as it is ----------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [import_breaches, world_breaches, call_breaches, assert_breaches])
def test_every_file_of_the_package_keeps_the_law(rule) -> None:
    assert [breach for source in package() for breach in rule(source)] == []


def test_the_law_names_every_room_of_the_package() -> None:
    assert {source.room for source in package()} <= set(LINE_OF)


# --- the rules can fail ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("src/oncemq/core/broker.py", "from oncemq.journal.codec import encode"),
        ("src/oncemq/core/broker.py", "import oncemq.wire"),
        ("src/oncemq/core/broker.py", "from oncemq import engine"),
        ("src/oncemq/core/broker.py", "from oncemq import connect"),
        ("src/oncemq/core/broker.py", "from ..wire import codec"),
        ("src/oncemq/core/broker.py", "from .. import wire"),
        ("src/oncemq/core/__init__.py", "from ..engine import loop"),
        ("src/oncemq/core/broker.py", "def decide():\n    from oncemq.engine import loop"),
        ("src/oncemq/core/broker.py", "if TYPE_CHECKING:\n    from oncemq.mesh import views"),
        ("src/oncemq/journal/journal.py", "from oncemq.wire import codec"),
        ("src/oncemq/engine/loop.py", "from oncemq.adapters import os_disk"),
        ("src/oncemq/adapters/os_disk.py", "from oncemq.core import records"),
        ("src/oncemq/client/client.py", "from oncemq.sim import disk"),
        ("src/oncemq/sim/world.py", "from oncemq.client.connect import connect"),
        ("src/oncemq/sim/world.py", "from oncemq.adapters import os_disk"),
        ("src/oncemq/errors.py", "from oncemq.limits import KIB"),
        ("src/oncemq/model/names.py", "from oncemq.core import records"),
        ("src/oncemq/client/client.py", "import oncemq"),
        ("src/pyspark_oncemq/__init__.py", "from oncemq.client import client"),
        ("src/oncemq/utils/helpers.py", ""),
    ],
)
def test_an_import_that_goes_up_or_sideways_is_found(path: str, line: str) -> None:
    assert len(import_breaches(snippet(path, line))) == 1


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("src/oncemq/core/broker.py", "from oncemq import errors, limits"),
        ("src/oncemq/core/broker.py", "from oncemq.core.records import Stored"),
        ("src/oncemq/core/broker.py", "from . import records"),
        ("src/oncemq/client/client.py", "from oncemq.adapters import zmq_network"),
        ("src/oncemq/client/client.py", "from oncemq.journal import journal"),
        ("src/oncemq/sim/world.py", "from oncemq.engine import loop"),
        ("src/oncemq/adapters/os_disk.py", "from oncemq.ports import File"),
        ("src/oncemq/adapters/os_disk.py", "from oncemq.model.names import check_topic"),
        ("src/oncemq/cli/put.py", "import oncemq"),
        ("src/oncemq/cli/put.py", "from oncemq import pipeline"),
        ("src/oncemq/__init__.py", "from oncemq.client.client import connect"),
        ("src/pyspark_oncemq/__init__.py", "from oncemq.pipeline.source import Source"),
        ("src/oncemq/model/block.py", "from crc32c import crc32c"),
    ],
)
def test_an_import_that_goes_down_is_left_alone(path: str, line: str) -> None:
    assert import_breaches(snippet(path, line)) == []


@pytest.mark.parametrize("room", PURE)
@pytest.mark.parametrize("module", sorted(WORLD))
def test_the_world_is_found_in_every_pure_room(room: str, module: str) -> None:
    assert len(world_breaches(snippet(f"src/oncemq/{room}/x.py", f"import {module}"))) == 1
    assert len(world_breaches(snippet(f"src/oncemq/{room}/x.py", f"def f():\n    from {module} import y"))) == 1


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("src/oncemq/journal/journal.py", "import os.path"),
        ("src/oncemq/journal/journal.py", "from pathlib import Path"),
        ("src/oncemq/engine/loop.py", "import time"),
        ("src/oncemq/client/client.py", "import zmq"),
        ("src/oncemq/cli/serve.py", "import zmq.asyncio"),
        ("src/oncemq/cli/audit.py", "from pyspark.sql import SparkSession"),
        ("src/oncemq/client/bulk.py", "import pyarrow"),
        ("src/oncemq/adapters/os_disk.py", "import pickle"),
    ],
)
def test_a_module_away_from_its_home_is_found(path: str, line: str) -> None:
    assert len(world_breaches(snippet(path, line))) == 1


def test_modules_in_their_home_are_left_alone() -> None:
    assert world_breaches(snippet("src/oncemq/adapters/zmq_network.py", "import os, time, zmq")) == []
    assert world_breaches(snippet("src/oncemq/pipeline/source.py", "import pyspark")) == []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("src/oncemq/journal/journal.py", "open('x')"),
        ("src/oncemq/core/broker.py", "print('x')"),
        ("src/oncemq/wire/codec.py", "getattr(packets, name)"),
        ("src/oncemq/wire/codec.py", "setattr(packet, name, 1)"),
        ("src/oncemq/cli/shell.py", "eval(line)"),
        ("src/oncemq/client/client.py", "__import__(name)"),
    ],
)
def test_a_call_that_reaches_around_the_ports_is_found(path: str, line: str) -> None:
    assert len(call_breaches(snippet(path, line))) == 1


def test_calls_of_ports_and_of_loud_rooms_are_left_alone() -> None:
    assert call_breaches(snippet("src/oncemq/journal/journal.py", "disk.open('x')")) == []
    assert call_breaches(snippet("src/oncemq/cli/put.py", "print('x')")) == []
    assert call_breaches(snippet("src/oncemq/core/broker.py", "getattr(self, 'name', None)")) == []


def test_an_assert_in_the_package_is_found() -> None:
    assert len(assert_breaches(snippet("src/oncemq/core/broker.py", "assert 1 == 1"))) == 1
