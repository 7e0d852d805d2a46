# SPDX-License-Identifier: Apache-2.0
"""Judges of how much: what is in doubt, and what may be gone."""

from __future__ import annotations

from random import Random

from oncemq.limits import RESERVE_AHEAD_CALLS, RESERVE_AHEAD_MESSAGES
from oncemq.model.message import Message, Source
from oncemq.sim.actors import Subscriber
from oncemq.sim.history import History
from oncemq.sim.world import World

BATCH = 4
RESERVED = RESERVE_AHEAD_MESSAGES + RESERVE_AHEAD_CALLS * BATCH
END = 5_000


def test_a_death_of_the_machine_or_a_takeover_puts_more_in_doubt_once() -> None:
    """Until the place is known again: a later death by kill -9 is like any other."""
    actor = Subscriber(World(1), History(), "sub", Random(1), topics=["t"], batch_max=BATCH)
    source = Source("t", 7, "pub", b"", 1, 0, 1, 0, b"")
    bounds = []

    def look() -> None:
        bounds.append((actor._most_in_doubt("7", END), actor._most_in_doubt("8", END)))

    look()
    actor.os_crashes += 1
    look()
    actor._deliver([Message("t", 0, b"a", None, None, 0, source)])
    look()
    actor.takeovers += 1
    look()
    actor._deliver([Message("t", 1, b"b", None, None, 0, source)])
    look()

    assert bounds == [(BATCH, BATCH), (RESERVED, RESERVED), (BATCH, RESERVED), (END, END), (BATCH, END)]
