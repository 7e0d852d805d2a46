# SPDX-License-Identifier: Apache-2.0
"""Every world ends with its test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.holes.helpers import WORLDS


@pytest.fixture(autouse=True)
def the_end_of_the_world() -> Iterator[None]:
    """Kill the brokers a test leaves running: the garbage collector would end them in the middle of something else."""
    yield
    while WORLDS:
        WORLDS.pop().kill_broker()
