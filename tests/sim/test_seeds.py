# SPDX-License-Identifier: Apache-2.0
"""The short form of `oncemq sim`: some seeds, two processes that must agree, and seeds that once failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from oncemq.sim.swarm import run_seed

ONCE_FAILED = {
    0: "a block that began before a gap was handed out from its beginning; an operating-system crash forgot what was told done",
    66: "a slot whose name was not synced was taken for a fresh one after a power cut",
    83: "a message in doubt that the application skipped was called lost",
    362: "a broker without any room left refused to read",
    389: "a Welcome told cursors older than those on their way",
    1277: "a broker that could not start on a full disk died of an invariant",
    1630: "as above, after a kill",
    5039: "an answer that was only late was called a breach of the fence",
    20163: "a takeover tried twice was fenced by its own first Hello, which came late",
}
"""Seeds of worlds that broke a promise while they were written. The worlds have grown since; the seeds are kept all the same."""


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_seed_that_once_failed_keeps_every_promise(seed: int) -> None:
    assert run_seed(seed).violations == {}


@pytest.mark.parametrize("first", range(5_000, 5_100, 10))
def test_worlds_that_go_wrong_keep_every_promise(first: int) -> None:
    for seed in range(first, first + 10):
        assert (seed, run_seed(seed).violations) == (seed, {})


def run_worker(hash_seed: str) -> list[str]:
    command = [sys.executable, "-m", "oncemq.sim.worker", "0", "12"]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()


def test_one_seed_is_one_history_whatever_the_hash_seed() -> None:
    one, other = run_worker("1"), run_worker("2")

    assert one == other
    assert len({json.loads(line)["digest"] for line in one}) == len(one) == 12
