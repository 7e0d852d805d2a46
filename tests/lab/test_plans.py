# SPDX-License-Identifier: Apache-2.0
"""Which trials a wish becomes."""

from __future__ import annotations

import pytest

from oncemq.lab.plans import FULL, QUICK, WITH_PROCESSES, Wish, trials_of
from oncemq.lab.trials import REAL, Experiment, Kind


def test_the_full_plan_has_the_settings_of_the_earlier_design_and_of_the_papers() -> None:
    trials = trials_of(Wish(tuple(Experiment)))
    assert {trial.sweep for trial in trials if trial.kind is Kind.RECEIVED} == {(10, 25, 50, 75)}
    assert {trial.sweep for trial in trials if trial.kind is Kind.KILLS} == {(10, 25, 50, 75, 90)}
    assert {trial.nodes for trial in trials if trial.kind is Kind.MEMBERSHIP} == {10, 20, 30}
    assert {trial.nodes for trial in trials if trial.kind is Kind.PAPERS} >= {1_000, 10_000}


def test_one_run_of_the_papers_serves_three_experiments() -> None:
    trials = trials_of(Wish((Experiment.OVERLAY, Experiment.RELIABILITY, Experiment.HEALING)))
    large = [trial for trial in trials if trial.nodes == 1_000]
    assert len({(trial.nodes, trial.seed) for trial in large}) == len(large)
    assert all(95 in trial.sweep for trial in large)


def test_the_longest_trials_begin_first() -> None:
    assert trials_of(Wish(tuple(Experiment)))[0].nodes == 10_000


def test_a_wish_may_name_size_seeds_and_the_first_seed() -> None:
    trials = trials_of(Wish((Experiment.RELIABILITY,), nodes=500, seeds=3, first=7))
    assert {(trial.kind, trial.nodes) for trial in trials} == {(Kind.PAPERS, 500)}
    assert sorted(trial.seed for trial in trials) == [7, 8, 9]
    assert max(trial.nodes for trial in trials_of(Wish(tuple(Experiment), largest=1_000))) == 1_000


def test_with_processes_there_is_one_mesh_of_each_size_and_no_experiment_of_the_papers() -> None:
    trials = trials_of(Wish(tuple(Experiment), is_real=True))
    assert all(trial.mode == REAL and trial.nodes <= 30 for trial in trials)
    assert trials_of(Wish((Experiment.OVERLAY,), is_real=True)) == []


@pytest.mark.parametrize("plans", [FULL, QUICK])
def test_every_experiment_has_a_plan(plans: dict) -> None:
    assert set(plans) == set(Experiment)
    assert set(WITH_PROCESSES) <= set(Experiment)
