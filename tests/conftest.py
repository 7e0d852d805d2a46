# SPDX-License-Identifier: Apache-2.0
"""What every test relies on: Ctrl-C reaches the processes they start, and drawn examples may take their time."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# A busy machine is slow, not wrong: what takes time here is the machine's other work.
settings.register_profile("oncemq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("oncemq")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A background job of a shell ignores Ctrl-C, and so would every process it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
