# SPDX-License-Identifier: Apache-2.0
"""One packet on its way, and what becomes of it: the words between a simulated network and whoever spoils it.

May not: do anything.
Next: sim/network.py, which asks; sim/swarm.py, which draws the verdicts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from oncemq.ports import Frames

TO_BROKER, TO_CLIENT = "to broker", "to client"
TO_LISTENER, FROM_LISTENER = "to listener", "from listener"
"""What is published, and the names of channels that followers send."""


class Transit(NamedTuple):
    """One packet on its way. One is made for every packet, so it is cheap."""

    direction: str
    link: str
    connection: int
    frames: Frames


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a packet: how many copies arrive, and after how long (on top of the line's own delay)."""

    copies: int = 1
    delay_us: int = 0


DELIVER = Verdict()
DROP = Verdict(copies=0)
