# SPDX-License-Identifier: Apache-2.0
"""A block as an application gets it whole: many messages at the price of one, sliced only as far as somebody looks.

May not: be handed out before it was validated: a checksum proves only what the sender meant (R19).
The idea: it is validated whole at once, and sliced when somebody looks: values in one C loop, keys, headers and Message objects
only where they are asked for. Whoever only passes a block on, or counts, pays nothing for its messages.
Next: model/block.py for the bytes, core/subscriber.py for who hands it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oncemq.model.block import messages_of, validate, values_of
from oncemq.model.message import Message, Source


class Block:
    """Messages that were stored together, in order. `values` is what was put; iterating gives whole messages."""

    __slots__ = ("_count", "_messages", "_raw", "_skip", "_values", "end_offset", "first_offset", "source")

    def __init__(self, raw: bytes, source: Source, skip: int, count: int, messages: Sequence[Message] = ()) -> None:
        """Use `Block.cut` or `Block.of`."""
        self._raw = raw
        self._skip = skip
        self._count = count
        self._messages = messages
        self._values: Sequence[bytes] | None = None
        self.source = source
        self.first_offset = source.first_offset + skip
        self.end_offset = self.first_offset + count
        """One behind the last message."""

    @classmethod
    def cut(cls, raw: bytes, source: Source, skip: int) -> Block:
        """Validate a block and leave out its first `skip` messages; raises BadBlock."""
        return cls(raw, source, skip, validate(raw) - skip)

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Block:
        """The rest of a block that was sliced already."""
        source = messages[0].source
        return cls(b"", source, messages[0].offset - source.first_offset, len(messages), messages)

    def __repr__(self) -> str:
        return f"<oncemq.Block {self.topic!r} [{self.first_offset}, {self.end_offset})>"

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    @property
    def topic(self) -> str:
        return self.source.topic

    @property
    def values(self) -> Sequence[bytes]:
        """What was put, in order."""
        if self._values is None:
            is_sliced = bool(self._messages)
            self._values = [message.value for message in self._messages] if is_sliced else values_of(self._raw)[self._skip :]
        return self._values

    @property
    def messages(self) -> Sequence[Message]:
        """Its messages, each with key, headers and times."""
        if not self._messages:
            self._messages = messages_of(self._raw, self.source, skip=self._skip)
        return self._messages
