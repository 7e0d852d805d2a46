# SPDX-License-Identifier: Apache-2.0
"""Cutting many values into blocks at full speed: no Python loop per message where none is needed.

May not: hold more than one block of the values at a time, or accept a value that put() would refuse.
The idea: take a thousand values, check types and sizes with C loops; only a chunk that is too large is looked at one by one.
Next: core/publisher.py for what a block is.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from oncemq.client.arguments import as_bytes
from oncemq.core.publisher import OpenBlock
from oncemq.errors import MessageTooLarge, UsageError
from oncemq.limits import BLOCK_CUT_BYTES, BLOCK_CUT_MESSAGES, KEY_BYTES_MAX, VALUE_BYTES_MAX


def blocks_of(
    topics: tuple[str, ...],
    values: Iterable[bytes],
    keys: list[bytes | None] | None,
    *,
    strict: bool,
    wall_us: Callable[[], int],
) -> Iterator[OpenBlock]:
    """Yield full blocks of these values, in order. A key that cannot be is told before the first of them."""
    _check_keys(keys)
    if isinstance(values, list | tuple):
        _checked(list(values))  # What is all there is judged as a whole: one bad value, and nothing is put.
    if not isinstance(values, Iterable):
        raise UsageError(f"put_many needs several values, not {type(values).__name__}")
    source = iter(values)
    taken = 0
    while chunk := _checked(list(islice(source, BLOCK_CUT_MESSAGES))):
        chunk_keys = None if keys is None else keys[taken : taken + len(chunk)]
        for first, end in _pieces(chunk, chunk_keys):
            piece_keys = None if chunk_keys is None else chunk_keys[first:end]
            yield _filled(OpenBlock(topics, strict=strict), chunk[first:end], piece_keys, wall_us())
        taken += len(chunk)


def _check_keys(keys: list[bytes | None] | None) -> None:
    if keys is None:
        return
    wrong = set(map(type, keys)) - {bytes, type(None)}
    if wrong:
        raise UsageError(f"a key must be bytes or None, not {wrong.pop().__name__}: encode it first")
    largest = max((len(key) for key in keys if key is not None), default=0)
    if largest > KEY_BYTES_MAX:
        raise MessageTooLarge("key", largest, KEY_BYTES_MAX)


def _checked(chunk: list[bytes]) -> list[bytes]:
    if set(map(type, chunk)) - {bytes}:
        chunk = list(map(as_bytes, chunk))
    largest = max(map(len, chunk), default=0)
    if largest > VALUE_BYTES_MAX:
        raise MessageTooLarge("value", largest, VALUE_BYTES_MAX)
    return chunk


def _pieces(chunk: list[bytes], keys: list[bytes | None] | None) -> list[tuple[int, int]]:
    """Where to cut a chunk so that no block is over the cutting size by more than its last message."""
    sizes = list(map(len, chunk))
    if keys is not None:
        sizes = [size + len(key or b"") for size, key in zip(sizes, keys, strict=True)]
    if sum(sizes) <= BLOCK_CUT_BYTES:
        return [(0, len(chunk))]
    cuts, total = [0], 0
    for index, size in enumerate(sizes):
        if total and total + size > BLOCK_CUT_BYTES:
            cuts.append(index)
            total = 0
        total += size
    return list(zip(cuts, [*cuts[1:], len(chunk)], strict=True))


def _filled(block: OpenBlock, values: list[bytes], keys: list[bytes | None] | None, time_us: int) -> OpenBlock:
    block.values = values
    block.times_us = array("q", [time_us]) * len(values)
    block.keys = keys
    return block
