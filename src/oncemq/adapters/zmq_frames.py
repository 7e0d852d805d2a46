# SPDX-License-Identifier: Apache-2.0
"""Packets in and out of a ZeroMQ socket at the price of a few system calls, not of enumerations and copies.

May not: wait.
The idea: pyzmq's multipart helpers combine flag enumerations and copy every frame, per packet. Plain integers and views of the
received memory did the same at half the broker's time (bench put --size 1024).
Next: adapters/zmq_link.py and adapters/zmq_network.py, which use it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import zmq

from oncemq.limits import KIB
from oncemq.ports import Frames

NOW: Final = int(zmq.DONTWAIT)
MORE: Final = int(zmq.DONTWAIT) | int(zmq.SNDMORE)
EVENTS: Final = int(zmq.EVENTS)
READABLE: Final = int(zmq.POLLIN)
_VIEW_BYTES = 64 * KIB
"""From this size on a frame is handed out as a view: below, a copy costs less than the view. measured: bench put."""

let_it_leave: Final[Callable[[], None]] = getattr(os, "sched_yield", lambda: None)
"""Call it behind the last frame of a packet. Whoever sends has something else to do before it waits, and ZeroMQ's own thread,
which writes to the connection, is often put behind it on the same core. measured: 8 to 15 % of a synchronous put."""


def receive_frames(socket: zmq.Socket[bytes]) -> Frames:
    """Take one packet, or raise zmq.Again if there is none."""
    frame = socket.recv(NOW, copy=False)
    frames: Frames = [frame.bytes if len(frame) < _VIEW_BYTES else frame.buffer]
    while frame.more:
        frame = socket.recv(NOW, copy=False)
        frames.append(frame.bytes if len(frame) < _VIEW_BYTES else frame.buffer)
    return frames
