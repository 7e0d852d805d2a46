# SPDX-License-Identifier: Apache-2.0
"""What packets are made of: bounded numbers, ids and texts, and the base of them all.

May not: name a packet.
Next: core/packets.py.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from oncemq.limits import GET_BYTES_MAX, GET_WAIT_MS_MAX, HEADER_BYTES_MAX

NOBODY = b"\0" * 16
"""An id that stands for "none"."""

Id16 = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Text = Annotated[str, msgspec.Meta(max_length=HEADER_BYTES_MAX)]
Short = Annotated[str, msgspec.Meta(max_length=64)]
WaitMs = Annotated[int, msgspec.Meta(ge=0, le=GET_WAIT_MS_MAX)]
SizeBytes = Annotated[int, msgspec.Meta(ge=1, le=GET_BYTES_MAX)]


class Packet(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all packets: nothing but the shape."""
