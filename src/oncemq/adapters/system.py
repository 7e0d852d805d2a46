# SPDX-License-Identifier: Apache-2.0
"""The machine's own clock and dice.

May not: do more than ask the operating system.
Next: ports.py for what they promise.
"""

from __future__ import annotations

import os
import random
import time

from oncemq.ports import Instant


class SystemClock:
    def now(self) -> Instant:
        return Instant(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000)

    def wall_us(self) -> int:
        return time.time_ns() // 1_000

    def pause(self, duration_ms: int) -> None:
        time.sleep(duration_ms / 1000)


class SystemDice(random.Random):
    """Seeded by the operating system."""


class SystemEntropy:
    def id16(self) -> bytes:
        return os.urandom(16)
