# SPDX-License-Identifier: Apache-2.0
"""The stage that tests with real processes play on; whoever is still alive afterwards is ended by its pid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.real.harness import Stage


@pytest.fixture
def make_stage(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    """Make stages with options of their own."""
    with ExitStack() as stages:

        def make(name: str = "stage", **options: int) -> Stage:
            directory = tmp_path / name
            directory.mkdir()
            return stages.enter_context(closing(Stage(directory, **options)))

        yield make


@pytest.fixture
def stage(make_stage: Callable[..., Stage]) -> Stage:
    """A broker that runs, with a topic that keeps everything."""
    made = make_stage()
    made.broker.start()
    made.keep_everything()
    return made
