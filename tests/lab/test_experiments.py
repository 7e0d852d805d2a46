# SPDX-License-Identifier: Apache-2.0
"""From trials to a page, on Spark: the short form of `oncemq experiment`."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncemq.cli import experiment
from oncemq.cli.exits import Exit
from oncemq.cli.main import run
from oncemq.cli.output import Output
from oncemq.lab import anchors
from oncemq.lab.page import write_results
from oncemq.lab.running import SCHEMA, run_trials
from oncemq.lab.statistics import STUDENT, Statistic, line_of, summed_up
from oncemq.lab.trials import SIMULATED, Experiment, Kind, Observation, Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

TRIALS = [
    *(Trial(Kind.PAPERS, nodes, seed, (50, 90)) for nodes in (60, 120) for seed in (1, 2)),
    *(Trial(Kind.MEMBERSHIP, nodes, seed) for nodes in (5, 8) for seed in (1, 2)),
    Trial(Kind.RECEIVED, 6, 1, (2,)),
    Trial(Kind.CONVERGENCE, 6, 1),
    Trial(Kind.KILLS, 6, 1, (50,)),
]


@pytest.fixture(scope="module")
def statistics(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Statistic]:
    """All kinds of trials, in small."""
    done: list[int] = []
    traces = tmp_path_factory.mktemp("experiment") / "simulated"
    frame = run_trials(spark, TRIALS, traces, done.append)
    assert done[-1] == len(TRIALS)
    assert list(traces.glob("*.parquet"))
    return summed_up(frame)


def test_every_experiment_is_summed_up_beside_its_anchors(statistics: list[Statistic]) -> None:
    assert {each.experiment for each in statistics} == set(Experiment)
    reach = [each for each in statistics if each.measure == "first_without_hold" and each.nodes == 120]
    assert [each.at for each in reach] == [50, 90]
    assert reach[0].seeds == 2 and reach[0].closed_form == pytest.approx(0.907, abs=0.001)
    sent = line_of(statistics, Experiment.MEMBERSHIP, "packets_join", SIMULATED)
    assert sent.at == [5, 8] and sent.means == [4, 7] and sent.errors == [0, 0]


def test_figures_statistics_and_page_are_written(statistics: list[Statistic], tmp_path: Path) -> None:
    page = write_results(statistics, tmp_path, "oncemq experiment all")
    for name in Experiment:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (tmp_path / f"{name}.svg").read_bytes()
        assert f"alt='{name}'" in page.read_text()
    with (tmp_path / "statistics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(statistics) and float(rows[0]["mean"]) == pytest.approx(statistics[0].mean, rel=1e-5)


@pytest.mark.usefixtures("spark")
def test_the_command_writes_a_page_and_says_the_statistics(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["experiment", "membership", "--nodes", "5", "--seeds", "2", "--out", str(tmp_path), "--json"]
    assert run(words) == Exit.OK
    said = json.loads(capfd.readouterr().out)
    assert said["trials"] == 2 and Path(said["page"]) == tmp_path / "index.html"
    assert {each["seeds"] for each in said["statistics"]} == {2}


def test_an_experiment_of_thousands_cannot_be_run_with_processes(tmp_path: Path) -> None:
    assert run(["experiment", "overlay", "--real", "--out", str(tmp_path)]) == Exit.USAGE


def test_a_broken_promise_is_an_exit_code(capfd: pytest.CaptureFixture[str]) -> None:
    broken = Statistic("reliability", SIMULATED, 20, "violations", 50.0, 2, 0, 0.5, None, None, 1.0, 1.0, None, None)
    assert experiment._say(Output(is_json=True), {}, [broken]) == Exit.FAILED
    assert "reliability of 20 nodes, at 50" in capfd.readouterr().err


def test_means_are_over_seeds_and_the_worst_is_on_the_bad_side(spark: SparkSession) -> None:
    def row(measure: str, seed: int, value: float | None) -> Observation:
        return Observation("healing", SIMULATED, 10, seed, measure, 50.0, value)

    rows = [row("told_cycles", seed, value) for seed, value in ((1, 1.0), (1, 3.0), (2, 6.0), (3, None))]
    rows += [row("first_with_hold", seed, value) for seed, value in ((1, 0.2), (2, 0.9))]
    told, first = sorted(summed_up(spark.createDataFrame(rows, SCHEMA)), key=lambda each: each.measure, reverse=True)
    assert (told.seeds, told.never, told.worst, first.worst) == (3, 1, 6.0, 0.2)
    assert told.mean == pytest.approx(4.0), "the mean of the seeds' means, 2 and 6"
    half = STUDENT[0] * math.sqrt(8) / math.sqrt(2)
    assert (told.low, told.high) == (pytest.approx(4 - half), pytest.approx(4 + half))
    assert first.p95 == pytest.approx(0.2 + 0.05 * 0.7)


def test_anchors_are_those_of_the_papers() -> None:
    assert anchors.paper_value("overlay", "mean_path", 10_000, 10_000) == 6.38542
    assert anchors.paper_value("overlay", "mean_path", 1_000, 1_000) is None
    assert anchors.paper_value("reliability", "send_mean", 1_000, 95) == 0.90
    assert anchors.paper_value("healing", "told_cycles", 1_000, 90) == 4
    assert anchors.flood_receptions(20) == 81 and anchors.flood_receptions(10_000) == 40_001
    assert anchors.membership_packets("forward_join", 11) == 280
