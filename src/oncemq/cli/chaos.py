# SPDX-License-Identifier: Apache-2.0
"""`oncemq chaos`: clients that subscribe, publish and fail at random at a live broker; a table meanwhile, a verdict at the end.

May not: judge, or touch anything at the broker but what it made.
The idea: the table shows what the clients wrote down so far, the verdict is the judges' over all of it.
Next: torturing/chaos.py for what happens.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncemq.cli.options import Json
from oncemq.cli.output import Output, output_of
from oncemq.cli.torture import Keep, Seed, directory_of, judged

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from oncemq.cli.torturing.cast import Player
    from oncemq.cli.torturing.verdict import Verdict

_REFRESH_S = 0.25


def chaos(
    context: typer.Context,
    clients: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="How many clients.")] = 6,
    seconds: Annotated[float, typer.Option(min=1, metavar="S", help="How long they do what they like.")] = 20.0,
    seed: Seed = None,
    address: Annotated[
        str, typer.Option("--address", "-a", metavar="ADDRESS", help="A broker that runs; without it: one of the run's own.")
    ] = "",
    keep: Keep = None,
    _json: Json = False,
) -> int:
    """Let clients subscribe, leave, put, get, listen and fail at random, and judge what the broker made of it.

    Clients fall over by themselves, are killed -9 and paused. Topics and clients have names of their own and go with the run.
    Exit code 1 if a promise was broken; the directory with the histories is then kept.

    oncemq chaos
    oncemq chaos --clients 20 --seconds 60 --seed 7
    oncemq chaos --address tcp://127.0.0.1:5556 --json
    """
    from oncemq.cli.torturing.chaos import Chaos
    from oncemq.cli.torturing.performance import Plan

    output, directory = output_of(context), directory_of(keep)
    plan = Plan(directory, ("client_kill",), 2**31, seconds, secrets.randbelow(2**31) if seed is None else seed)

    def perform() -> tuple[Chaos, Verdict]:
        with Board(output, directory) as board:
            run = f"chaos-{secrets.token_hex(4)}"
            performance = Chaos(plan, board.update, run=run, guests=clients, address=address)
            board.players = performance.players
            return performance, performance.run()

    return judged(output, directory, perform, is_wanted=keep is not None)


class Board:
    """The table on a terminal: a row per client, counted from what it wrote down; nothing elsewhere."""

    def __init__(self, output: Output, directory: Path) -> None:
        self.players: list[Player] = []
        self._directory = directory
        self._counts: dict[str, Counter[str]] = {}
        self._read_bytes: Counter[str] = Counter()
        self._due_s = 0.0
        self._live: Live | None = None
        if output.has_watcher:
            from rich.live import Live

            self._live = Live(console=output.console(stderr=True), transient=True, auto_refresh=False)

    def __enter__(self) -> Board:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, _done: int, last: str) -> None:
        if self._live is not None and time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + _REFRESH_S
            self._live.update(self.table(last), refresh=True)

    def table(self, last: str) -> Table:
        from rich.table import Table

        table = Table(title=last, title_justify="left", box=None)
        for heading in ("client", "life", "put", "got", "subscribed", "left", "in doubt"):
            table.add_column(heading, justify="left" if heading == "client" else "right")
        for player in self.players:
            counts = self._counted(player.name)
            shown = [counts[name] for name in ("put", "deliver", "subscribe", "unsubscribe", "in_doubt")]
            table.add_row(player.name, str(player.life), *(f"{count:,}" for count in shown))
        return table

    def _counted(self, name: str) -> Counter[str]:
        """How often each operation was written down, read on from where the last look ended."""
        counts = self._counts.setdefault(name, Counter())
        path = self._directory / "histories" / f"{name}.jsonl"
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._read_bytes[name])
                content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            self._read_bytes[name] += len(whole)
            for line in whole.splitlines():
                if b'"kind":"ok"' in line:
                    counts[line.partition(b'"op":"')[2].partition(b'"')[0].decode()] += 1
        return counts
