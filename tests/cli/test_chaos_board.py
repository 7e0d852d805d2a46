# SPDX-License-Identifier: Apache-2.0
"""What `oncemq chaos` and `oncemq torture` show: a table while it goes on, figures and a verdict in the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from oncemq.cli.chaos import Board
from oncemq.cli.output import Output
from oncemq.cli.torture import report
from oncemq.cli.torturing.cast import Player
from oncemq.cli.torturing.performance import Performance, Plan
from oncemq.cli.torturing.recorder import Recorder, history_of
from oncemq.cli.torturing.verdict import judge


def shown(board: Board) -> list[list[str]]:
    console = Console(width=120, record=True, quiet=True)
    with console.capture() as capture:
        console.quiet = False
        console.print(board.table("kill -9 a"))
    return [line.split() for line in capture.get().splitlines()]


def test_the_table_counts_what_was_written_down_and_goes_on_from_there(tmp_path: Path) -> None:
    board = Board(Output(is_json=True), tmp_path)
    board.players = [Player("a", life=2), Player("b", life=1)]
    recorder = Recorder(history_of(tmp_path, "a"), "a", 2)
    recorder.note("invoke", "put", message="x")
    recorder.note("ok", "put", message="x")
    recorder.note_all("ok", "deliver", [{"offset": 1}, {"offset": 2}])
    assert shown(board)[2:] == [["a", "2", "1", "2", "0", "0", "0"], ["b", "1", "0", "0", "0", "0", "0"]]
    with history_of(tmp_path, "a").open("ab") as file:
        file.write(b'{"t":1,"process":"a","life":2,"kind":"ok","op":"del')
    assert shown(board)[2] == ["a", "2", "1", "2", "0", "0", "0"], "half a line is not counted"
    Recorder(history_of(tmp_path, "a"), "a", 3).note("ok", "subscribe")
    assert shown(board)[2] == ["a", "2", "1", "2", "1", "0", "0"]


@pytest.mark.parametrize(
    ("wrongs", "last"), [({}, "every promise held"), ({"order": ["x", "y"]}, "1 broken promise(s), witnessed above")]
)
def test_a_run_ends_with_its_verdict_in_words(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], wrongs: dict[str, list[str]], last: str
) -> None:
    verdict = judge([])
    verdict.violations.update(wrongs)
    report(Output(), Performance(Plan(tmp_path, (), 1, 1.0, 7), lambda *_: None), verdict, 2.0)
    told = capfd.readouterr()
    assert told.out.splitlines()[-1] == last
    assert told.err.count("order: ") == len(wrongs.get("order", []))
