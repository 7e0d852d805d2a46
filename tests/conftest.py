# SPDX-License-Identifier: Apache-2.0
"""What every test relies on: Ctrl-C reaches the processes they start, however the tests themselves were started."""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A background job of a shell ignores Ctrl-C, and so would every process it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
