# SPDX-License-Identifier: Apache-2.0
"""How a mesh is run, from three places: a TOML file, the environment, flags; the later one wins.

May not: know defaults: they are in limits.py.
The idea: every field of MeshSettings is a key of the file's `[mesh]` table, a variable `ONCEMQ_MESH_<NAME>`, and a word of
`--set NAME=VALUE`. What is no such name, or no number, is refused with the names there are.
Next: mesh/settings.py.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from oncemq.errors import UsageError
from oncemq.limits import BLOCK_BYTES_MAX, MESH_IDS_MAX, MIB, TRANSACT_PUTS_MAX
from oncemq.mesh.settings import MeshSettings

PREFIX = "ONCEMQ_MESH_"
OTHERS = frozenset({"JOIN", "ADDRESS", "ADVERTISE", "CONFIG"})
"""Variables of that prefix that are no settings."""
LEAST = {
    **dict.fromkeys(("active", "dials_max", "ask_timeout_ms", "backoff_ms", "request_timeout_ms"), 1),
    **dict.fromkeys(("heartbeat_ms", "heartbeat_timeout_ms", "digest_grace_ms"), 10),
    **dict.fromkeys(("early_messages", "request_messages"), TRANSACT_PUTS_MAX),
    "early_bytes": BLOCK_BYTES_MAX,
    "retention_ms": 1_000,
    "retention_bytes": MIB,
}
"""Below these a node would find nobody, count everybody as dead, never notice what it misses, spin, forget what it has just
stored, or never get a whole transaction together."""
MOST = {
    **dict.fromkeys(("active", "active_walk", "passive_walk", "shuffle_ttl"), MESH_IDS_MAX),
    **dict.fromkeys(("shuffle_active", "shuffle_passive"), MESH_IDS_MAX // 2 - 1),
    "early_messages": 100_000,
    "early_bytes": 1024 * MIB,
}
"""Above these other nodes would not read our packets (mesh/packets.py), or what waits, and may have its turn all at once, would
not fit into a segment as one group."""
MOST_OF_ALL = 10**15


def read_settings(file: Path | None, pairs: Iterable[str], environment: Mapping[str, str] | None = None) -> MeshSettings:
    """Put the settings together."""
    found: dict[str, object] = {}
    if file is not None:
        found |= _from_file(file)
    variables = os.environ if environment is None else environment
    found |= {
        name.removeprefix(PREFIX).lower(): value
        for name, value in variables.items()
        if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in OTHERS
    }
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--set {pair!r}: use NAME=VALUE, like --set heartbeat_ms=500")
        found[name] = value
    settings = MeshSettings(**{name: _number(name, value) for name, value in found.items()})
    if settings.heartbeat_timeout_ms <= settings.heartbeat_ms:
        raise UsageError(
            f"heartbeat_timeout_ms = {settings.heartbeat_timeout_ms}: every neighbour would count as dead between two"
            f" heartbeats; use several times heartbeat_ms, which is {settings.heartbeat_ms}"
        )
    return settings


def _from_file(file: Path) -> dict[str, object]:
    try:
        content = tomllib.loads(file.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else problem
        raise UsageError(f"cannot read {file}: {reason}") from problem
    table = content.get("mesh") if content else {}
    if not isinstance(table, dict):
        raise UsageError(f"{file} has no table [mesh]: settings of a mesh stand below a line that says [mesh]")
    return table


def _number(name: str, value: object) -> int:
    names = [field.name for field in msgspec.structs.fields(MeshSettings)]
    if name not in names:
        raise UsageError(f"a mesh has no setting {name!r}: there are {', '.join(names)}")
    least, most = LEAST.get(name, 0), MOST.get(name, MOST_OF_ALL)
    try:
        number = msgspec.convert(value, type=int, strict=False)
    except msgspec.ValidationError:
        number = -1
    if not least <= number <= most:
        raise UsageError(f"{name} = {value!r}: use a whole number from {least:,} to {most:,}")
    return number
