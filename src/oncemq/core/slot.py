# SPDX-License-Identifier: Apache-2.0
"""The slot: how far an application has come with one subscription, in a form that survives kill -9 at any byte (R8).

May not: be written in place. Two copies lie in two pages; each write goes to the one not written last, with a counter and a
checksum, so that a torn write leaves the other.
The idea: finished <= handed <= reserved. Below `finished` everything is done; [finished, handed) was handed out and may or may
not have been handled; beyond `reserved`, which is synced, nothing was ever handed out, whatever the disk forgot.
Next: core/subscriber.py, which moves these numbers; client/state.py, which writes them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from crc32c import crc32c

PAGE_BYTES = 4096
SLOT_BYTES = 2 * PAGE_BYTES
_HOT = struct.Struct("<QQQQQ")
_COLD = struct.Struct("<QQ16s16s16sBB2xI")
_CRC = struct.Struct("<I")
_SIZE = _HOT.size + _COLD.size + _CRC.size


@dataclass(slots=True)
class Slot:
    """One subscription's place. `clean` says that the last process ended on its own."""

    subscription_id: int
    topic_id: int
    finished: int
    handed: int
    reserved: int
    append_number: int = 0
    start_id: bytes = b"\0" * 16
    session: bytes = b"\0" * 16
    boot: bytes = b"\0" * 16
    is_clean: bool = False
    mode: int = 0
    """0: get; 1: receive (a message handed out is given again)."""
    attempt: int = 0
    """How often what lies at `finished` was given, in mode 1."""
    counter: int = 0
    _cold: bytes = field(default=b"", repr=False)

    def freeze(self) -> None:
        """Note that one of the rarely changing fields changed."""
        self._cold = _COLD.pack(
            self.subscription_id, self.topic_id, self.start_id, self.session, self.boot, self.is_clean, self.mode, self.attempt
        )

    def encode(self) -> tuple[int, bytes]:
        """Return where to write, and what. Each call goes to the other page."""
        self.counter += 1
        body = _HOT.pack(self.counter, self.finished, self.handed, self.reserved, self.append_number) + self._cold
        return (self.counter & 1) * PAGE_BYTES, body + _CRC.pack(crc32c(body))


def decode_slot(pages: bytes) -> Slot | None:
    """Return the newer of the two valid copies; None if there is none (a fresh file)."""
    found = [slot for at in (0, PAGE_BYTES) if (slot := _decode(pages[at : at + _SIZE])) is not None]
    return max(found, key=lambda slot: slot.counter) if found else None


def _decode(content: bytes) -> Slot | None:
    if len(content) < _SIZE or _CRC.unpack_from(content, _SIZE - 4)[0] != crc32c(content[: _SIZE - 4]):
        return None
    counter, finished, handed, reserved, append_number = _HOT.unpack_from(content)
    subscription_id, topic_id, start_id, session, boot, is_clean, mode, attempt = _COLD.unpack_from(content, _HOT.size)
    slot = Slot(
        subscription_id,
        topic_id,
        finished,
        handed,
        reserved,
        append_number,
        start_id,
        session,
        boot,
        bool(is_clean),
        mode,
        attempt,
        counter,
    )
    slot.freeze()
    return slot
