# SPDX-License-Identifier: Apache-2.0
"""A block as an application gets it whole: many messages at the price of one, sliced only as far as somebody looks.

May not: be handed out before it was validated: a checksum proves only what the sender meant (R19).
The idea: values are sliced at once, in one C loop; keys, headers and Message objects only where they are asked for.
Next: model/block.py for the bytes, core/subscriber.py for who hands it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oncemq.model.block import messages_of, values_of
from oncemq.model.message import Message, Source


class Block:
    """Messages that were stored together, in order. `values` is what was put; iterating gives whole messages."""

    __slots__ = ("_messages", "_raw", "_skip", "source", "values")

    def __init__(self, raw: bytes, source: Source, skip: int, messages: Sequence[Message] = ()) -> None:
        """Use `Block.cut` or `Block.of`."""
        self._raw = raw
        self._skip = skip
        self._messages = messages
        self.source = source
        self.values: Sequence[bytes] = [message.value for message in messages] if messages else values_of(raw)[skip:]

    @classmethod
    def cut(cls, raw: bytes, source: Source, skip: int) -> Block:
        """Validate a block and leave out its first `skip` messages; raises BadBlock."""
        return cls(raw, source, skip)

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Block:
        """The rest of a block that was sliced already."""
        source = messages[0].source
        return cls(b"", source, messages[0].offset - source.first_offset, messages)

    def __repr__(self) -> str:
        return f"<oncemq.Block {self.topic!r} [{self.first_offset}, {self.end_offset})>"

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    @property
    def topic(self) -> str:
        return self.source.topic

    @property
    def first_offset(self) -> int:
        return self.source.first_offset + self._skip

    @property
    def end_offset(self) -> int:
        """One behind the last message."""
        return self.first_offset + len(self.values)

    @property
    def messages(self) -> Sequence[Message]:
        """Its messages, each with key, headers and times."""
        if not self._messages:
            self._messages = messages_of(self._raw, self.source, skip=self._skip)
        return self._messages
