# SPDX-License-Identifier: Apache-2.0
"""The packets of staging: blocks that wait for a commit, and the commit that makes all of a batch visible at once (R22).

May not: touch bytes, or change meaning once released, like every packet.
Next: core/staging.py, which decides them; core/packets.py for all others.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from oncemq.core.shapes import Count, Id16, Natural, Packet, Positive, Text
from oncemq.limits import STAGED_PARTS_MAX


class Stage(Packet, frozen=True, array_like=True, gc=False):
    """Keep the block in the second frame as the next chunk of a part, invisible until a commit names the part. No session.

    `query` and `batch` say whose it is; the part id is random, made by the task that stages it.
    """

    query: Text
    batch: Natural
    part: Id16
    chunk: Positive
    count: Count


class StageDone(Packet, frozen=True, array_like=True, gc=False):
    """The chunk is on disk; or the batch was committed before, and nothing of it is needed any more."""

    part: Id16
    chunk: Positive
    is_committed: bool


class PartClaim(Packet, frozen=True, array_like=True, gc=False):
    """One part in a commit: what the task that staged it was told. `crc` is over the checksums of its blocks."""

    part: Id16
    topic: Text
    chunks: Positive
    rows: Positive
    crc: Natural


class CommitStaged(Packet, frozen=True, array_like=True, gc=False):
    """Give all these parts their offsets, or none. The second frame holds a msgpack array of `parts` times PartClaim.

    `is_once`: the id will never be used again, so that it need not be remembered for ever.
    """

    query: Text
    batch: Natural
    parts: Annotated[int, msgspec.Meta(ge=0, le=STAGED_PARTS_MAX)]
    is_once: bool = False


class CommittedRange(Packet, frozen=True, array_like=True, gc=False):
    """What a commit gave to one topic: offsets [first_offset, first_offset + rows)."""

    topic_id: Natural
    first_offset: Natural
    rows: Natural


class CommitStagedDone(Packet, frozen=True, array_like=True, gc=False):
    """The batch is committed: now, or `is_repeat` before, with the same ranges."""

    query: Text
    batch: Natural
    is_repeat: bool
    ranges: tuple[CommittedRange, ...]
