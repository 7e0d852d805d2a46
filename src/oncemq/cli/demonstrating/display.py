# SPDX-License-Identifier: Apache-2.0
"""What a person sees of `oncemq demo` while it runs: a row per process with its rate, lag and deaths, and a line per kill.

May not: know more than the director's facts say.
Next: director.py.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from oncemq.cli.demonstrating.director import Facts
from oncemq.cli.demonstrating.stage import BROKER, PUBLISHERS, Player, Stage
from oncemq.cli.output import Output

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

WORK = {
    BROKER: "keeps what is put, then says so",
    "publisher-1": "puts orders",
    "publisher-2": "puts orders",
    "plain": "gets them: get_many()",
    "live": "has them pushed: listen()",
    "ledger": "SQLite rows: transaction()",
    "lake": "Delta table on Spark",
}


class Display:
    """A table that moves on a terminal; only the lines elsewhere; silence with --json."""

    def __init__(self, output: Output, stage: Stage, *, has_lake: bool) -> None:
        self._output, self._stage = output, stage
        self._has_lake = has_lake
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._output.has_watcher:
            from rich.live import Live

            self._live = Live(console=self._output.console(stderr=True), refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text)
        else:
            self._output.note(text)

    def on_kill(self, player: Player, pid: int) -> None:
        self.say(f"kill -9 {pid}  {player.name}")

    def on_look(self, facts: Facts) -> None:
        if self._live is not None:
            self._live.update(self._table(facts))

    def _table(self, facts: Facts) -> Table:
        from rich import box
        from rich.table import Table

        put = sum(facts.latest(name) for name in PUBLISHERS)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=f"{facts.at_s[-1]:.0f} s", title_justify="left")
        for heading in ("process", "does"):
            table.add_column(heading)
        for heading in ("messages", "per second", "behind", "killed"):
            table.add_column(heading, justify="right")
        for player in self._stage.players():
            name = player.name if player.is_alive or player.is_done else f"{player.name} (dead)"
            table.add_row(name, WORK[player.name], *_figures(player.name, facts, put), str(player.kills))
        if self._has_lake:
            table.add_row("lake", WORK["lake"], *_figures("lake", facts, put), "")
        return table


def _figures(name: str, facts: Facts, put: int) -> tuple[str, str, str]:
    if name == BROKER:
        return f"{put:,}", "", ""
    latest = facts.latest(name)
    behind = "" if name in PUBLISHERS else f"{max(0, put - latest):,}"
    return f"{latest:,}", f"{facts.rate(name):,.0f}", behind
