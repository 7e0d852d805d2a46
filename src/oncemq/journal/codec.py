# SPDX-License-Identifier: Apache-2.0
"""Record ⇄ bytes, on disk and on the way to a subscriber: they are the same bytes.

May not: trust a byte it reads. Whatever is wrong raises BadRecord, nothing else.
The idea: every record is a frame, a header and perhaps a block, padded to a multiple of 8.

    frame 16:  length u32 · type u8 · version u8 · reserved u16 · header length u32 · crc32c u32
    header:    msgpack, or for Stored a struct with placements, origin, publisher and names of topics behind it
               Moved: source u64 · type u8 · zeros 7, then the header of that type
    block:     only in Stored and Staged, and in either when moved; the client's bytes verbatim, under their own checksum

The frame's checksum covers the frame and the header. So a broker hands a record out without reading its block,
and a block is never copied to be written. docs/journal-format.md has the tables.
Next: segment.py, which puts records into groups.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec
from crc32c import crc32c

from oncemq.core.origins import LOG_BIT, log_id_of
from oncemq.core.parts import Splice
from oncemq.core.records import CODES, NOT_STORED, Held, Lost, Moved, Origin, Placement, Record, Staged, StagedCommitted, Stored
from oncemq.errors import invariant
from oncemq.model.block import checksum

Bytes = bytes | bytearray | memoryview

VERSION = 1
FRAME_BYTES = 16
HAS_ORIGIN, HAS_MORE = 1, 2
STORED_CODE = next(code for code, kind in CODES.items() if kind is Stored)
STAGED_CODE = next(code for code, kind in CODES.items() if kind is Staged)
COMMITTED_CODE = next(code for code, kind in CODES.items() if kind is StagedCommitted)
LOST_CODE = next(code for code, kind in CODES.items() if kind is Lost)
MOVED_CODE = next(code for code, kind in CODES.items() if kind is Moved)
_MOVED = struct.Struct("<QB7x")
MOVED_BYTES = _MOVED.size  # How much longer a record gets when it is moved.
_LEAD = struct.Struct("<IBBHI")  # The frame without its checksum.
_CRC = struct.Struct("<I")
_FRAME = struct.Struct("<IBBHII")
_STORED = struct.Struct("<Qq16s16sQIIIHHII")
_PLACEMENT = struct.Struct("<Qq")
_ORIGIN = struct.Struct("<16s16sQ")
_FRAME_STORED = struct.Struct("<IBBHIIQq16s16sQIIIHHIIQq")  # A frame, a Stored header and its first placement at once.
_PLACEMENTS_AT = FRAME_BYTES + _STORED.size
_ONE_PLACEMENT_END = _PLACEMENTS_AT + _PLACEMENT.size
_BLOCK_CRC_AT = 12  # Where a block holds its own checksum, see model/block.py.
_PADDING = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")

_CODE_OF: dict[type, int] = {kind: code for code, kind in CODES.items()}
_DECODERS: dict[int, msgspec.msgpack.Decoder[Any]] = {
    code: msgspec.msgpack.Decoder(kind) for code, kind in CODES.items() if kind not in {Stored, Staged, Moved}
}
_STAGED = msgspec.msgpack.Decoder(tuple[int, int, bytes, int, str, int, int, int, int, int, int])  # All fields but the block.
_NAMES = msgspec.msgpack.Decoder(tuple[str, ...])
_ENCODER = msgspec.msgpack.Encoder()


class BadRecord(Exception):
    """These bytes are not a record. Internal: recovery and readers say what it means where they stand."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """Where the pieces of one record lie in a buffer."""

    code: int
    header_start: int
    block_start: int
    block_end: int
    next_position: int


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A stored block as a subscriber sees it, without the block's bytes: one topic, one first offset."""

    topic_id: int
    first_offset: int
    count: int
    append_number: int
    append_time_us: int
    start_id: bytes
    stream: bytes
    first_number: int
    block_crc: int
    publisher: str
    origin: Origin | None


def padded(size_bytes: int) -> int:
    return (size_bytes + 7) & ~7


# --- frames, for records of any kind ----------------------------------------------------------------


def seal_frame(code: int, header: bytes, block_bytes: int = 0) -> bytes:
    """Return frame and header of a record whose block will follow."""
    lead = _LEAD.pack(len(header) + block_bytes, code, VERSION, 0, len(header))
    return b"%b%b%b" % (lead, _CRC.pack(crc32c(header, crc32c(lead))), header)


def seal_parts(code: int, header: bytes, block: Bytes = b"") -> list[Bytes]:
    """Return a whole record as parts whose lengths add up to a multiple of 8; the block is not copied."""
    lead = seal_frame(code, header, len(block))
    padding = _PADDING[(len(header) + len(block)) & 7]
    if not len(block):
        return [lead + padding]
    return [lead, block, padding] if padding else [lead, block]


def open_frame(buffer: Bytes, position: int) -> Frame:
    """Check the frame and the header of the record at `position`; its block is not looked at."""
    if position < 0 or len(buffer) - position < FRAME_BYTES:
        raise BadRecord("cut short in a frame")
    length, code, version, reserved, header_length, crc = _FRAME.unpack_from(buffer, position)
    start = position + FRAME_BYTES
    next_position = start + padded(length)
    if version != VERSION or reserved or header_length > length:
        raise BadRecord("not a frame")
    if next_position > len(buffer):
        raise BadRecord("cut short in a record")
    view = memoryview(buffer)
    if crc32c(view[start : start + header_length], crc32c(view[position : position + 12])) != crc:
        raise BadRecord("checksum of a record")
    return Frame(code, start, start + header_length, start + length, next_position)


def check_block_bytes(block: Bytes, block_crc: int) -> None:
    """Check that these bytes are the block that had this checksum, its own copy of it included."""
    if len(block) < _BLOCK_CRC_AT + 4 or _CRC.unpack_from(block, _BLOCK_CRC_AT)[0] != block_crc or checksum(block) != block_crc:
        raise BadRecord("checksum of a block")


# --- encoding ---------------------------------------------------------------------------------------


def encode(record: Record) -> list[Bytes]:
    """Return a record as parts: one, or for a stored block two, so that the block is never copied."""
    if type(record) is Stored:
        return _encode_stored(record)
    if type(record) is Staged:
        return seal_parts(STAGED_CODE, _staged_header(record), record.block)
    if type(record) is Moved:
        return moved_parts(b"".join(encode(record.held)), record.source)
    return seal_parts(_CODE_OF[type(record)], _ENCODER.encode(record))


def encoded_size(record: Record) -> int:
    """How many bytes `encode` makes of it."""
    return sum(map(len, encode(record)))


def _staged_header(record: Staged) -> bytes:
    """All fields but the block."""
    return _ENCODER.encode(msgspec.structs.astuple(record)[:-1])


def _is_stored(placements: Sequence[Placement]) -> bool:
    return any(placement.first_offset != NOT_STORED for placement in placements)


def _encode_stored(record: Stored) -> list[Bytes]:
    # A block nobody was interested in is an outcome without bytes; its checksum still tells a repeat from a conflict.
    block = record.block if _is_stored(record.placements) else b""
    invariant(not block or len(block) == record.block_bytes, "a block is not as long as its record says")
    return seal_parts(STORED_CODE, _stored_header(record, len(block)), block)


def _stored_header(record: Stored, block_length: int) -> bytes:
    publisher = record.publisher.encode()
    names = _ENCODER.encode(record.topics) if record.topics else b""
    origin = record.origin
    head = _STORED.pack(
        record.append_number,
        record.append_time_us,
        record.start_id,
        record.stream,
        record.first_number,
        record.count,
        block_length,
        record.block_crc,
        len(record.placements),
        len(publisher),
        (0 if origin is None else HAS_ORIGIN) | (HAS_MORE if record.has_more else 0),
        len(names),
    )
    pieces = [head, *[_PLACEMENT.pack(placement.topic_id, placement.first_offset) for placement in record.placements]]
    if origin is not None:
        pieces.append(_ORIGIN.pack(origin.node, origin.start_id, origin.number))
    pieces += (publisher, names, _PADDING[(len(publisher) + len(names)) & 7])
    return b"".join(pieces)


# --- decoding ---------------------------------------------------------------------------------------


def decode(buffer: Bytes, position: int = 0, *, with_block: bool = False) -> tuple[Record, int]:
    """Return the record at `position` and where the next one starts.

    Everything is checked but the block, which `check_record` does. Without `with_block` a Stored carries no bytes:
    state never depends on them, and a replay need not copy them.
    """
    frame = open_frame(buffer, position)
    if frame.code == STORED_CODE:
        return _decode_stored(buffer, frame, with_block=with_block), frame.next_position
    if frame.code == STAGED_CODE:
        return _decode_staged(buffer, frame, with_block=with_block), frame.next_position
    if frame.code == MOVED_CODE:
        return _decode_moved(buffer, frame, with_block=with_block), frame.next_position
    decoder = _DECODERS.get(frame.code)
    if decoder is None or frame.block_start != frame.block_end:
        raise BadRecord(f"record type {frame.code}")
    try:
        record: Record = decoder.decode(memoryview(buffer)[frame.header_start : frame.block_start])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRecord(f"record type {frame.code}: {error}") from error
    return record, frame.next_position


def _decode_staged(buffer: Bytes, frame: Frame, *, with_block: bool) -> Staged:
    view = memoryview(buffer)
    try:
        fields = _STAGED.decode(view[frame.header_start : frame.block_start])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRecord(f"Staged: {error}") from error
    record = Staged(*fields, bytes(view[frame.block_start : frame.block_end]) if with_block else b"")
    if record.block_bytes != frame.block_end - frame.block_start:
        raise BadRecord("Staged has a block of another size")
    return record


def check_record(buffer: Bytes, position: int) -> tuple[Record, int]:
    """Like `decode`, and check the bytes of its block too."""
    record, next_position = decode(buffer, position)
    held = record.held if type(record) is Moved else record
    if isinstance(held, Stored | Staged) and held.block_bytes:
        start = position + FRAME_BYTES + _header_length(buffer, position)
        check_block_bytes(memoryview(buffer)[start : start + held.block_bytes], held.block_crc)
    return record, next_position


def _header_length(buffer: Bytes, position: int) -> int:
    found: int = _CRC.unpack_from(buffer, position + 8)[0]
    return found


def _decode_stored(buffer: Bytes, frame: Frame, *, with_block: bool) -> Stored:
    start, end = frame.header_start, frame.block_start
    if end - start < _STORED.size:
        raise BadRecord("Stored is cut short")
    (
        append_number, append_time_us, start_id, stream, first_number, count, block_length, block_crc,
        placement_count, publisher_length, flags, names_length,
    ) = _STORED.unpack_from(buffer, start)  # fmt: skip
    at = start + _STORED.size
    origin_at = at + placement_count * _PLACEMENT.size
    publisher_at = origin_at + _ORIGIN.size * (flags & HAS_ORIGIN)
    names_at = publisher_at + publisher_length
    if flags > HAS_ORIGIN | HAS_MORE or end - start != padded(names_at + names_length - start):
        raise BadRecord("Stored has a header of another size")
    if block_length != frame.block_end - frame.block_start:
        raise BadRecord("Stored has a block of another size")
    view = memoryview(buffer)
    return Stored(
        append_number,
        append_time_us,
        start_id,
        stream,
        first_number,
        count,
        block_crc,
        block_length,
        tuple([Placement(*pair) for pair in _PLACEMENT.iter_unpack(view[at:origin_at])]),
        _text(buffer, publisher_at, publisher_length),
        Origin(*_ORIGIN.unpack_from(buffer, origin_at)) if flags & HAS_ORIGIN else None,
        bytes(view[frame.block_start : frame.block_end]) if with_block else b"",
        _names(view[names_at : names_at + names_length]) if names_length else (),
        bool(flags & HAS_MORE),
    )


def _names(content: memoryview) -> tuple[str, ...]:
    try:
        return _NAMES.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRecord(f"names of topics: {error}") from error


def _decode_moved(buffer: Bytes, frame: Frame, *, with_block: bool) -> Moved:
    source, code = _moved_from(buffer, frame)
    inner = msgspec.structs.replace(frame, code=code, header_start=frame.header_start + MOVED_BYTES)
    return Moved(source, _decode_held(buffer, inner, with_block=with_block))


def _moved_from(buffer: Bytes, frame: Frame) -> tuple[int, int]:
    """Return the source of a moved record and the type it had there."""
    if frame.block_start - frame.header_start < MOVED_BYTES:
        raise BadRecord("Moved is cut short")
    source, code = _MOVED.unpack_from(buffer, frame.header_start)
    if bytes(buffer[frame.header_start : frame.header_start + MOVED_BYTES]) != _MOVED.pack(source, code):
        raise BadRecord("Moved has a header of another kind")
    return source, code


def _decode_held(buffer: Bytes, frame: Frame, *, with_block: bool) -> Held:
    if frame.code == STORED_CODE:
        return _decode_stored(buffer, frame, with_block=with_block)
    if frame.code == STAGED_CODE:
        return _decode_staged(buffer, frame, with_block=with_block)
    if frame.code not in {COMMITTED_CODE, LOST_CODE} or frame.block_start != frame.block_end:
        raise BadRecord(f"a moved record of type {frame.code}")
    try:
        held: StagedCommitted | Lost = _DECODERS[frame.code].decode(memoryview(buffer)[frame.header_start : frame.block_start])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRecord(f"a moved record of type {frame.code}: {error}") from error
    return held


def _text(buffer: Bytes, position: int, size_bytes: int) -> str:
    try:
        return str(memoryview(buffer)[position : position + size_bytes], "utf-8")
    except UnicodeDecodeError as error:
        raise BadRecord("a name is not UTF-8") from error


# --- moving -----------------------------------------------------------------------------------------


def moved_parts(record_bytes: Bytes, source: int) -> list[Bytes]:
    """Return a record as one that was moved from `source`; its header and block stay what they are, however often."""
    frame = open_frame(record_bytes, 0)
    code, header_start = frame.code, frame.header_start
    if code == MOVED_CODE:
        code, header_start = _moved_from(record_bytes, frame)[1], header_start + MOVED_BYTES
    view = memoryview(record_bytes)
    header = _MOVED.pack(source, code) + view[header_start : frame.block_start]
    return seal_parts(MOVED_CODE, header, view[frame.block_start : frame.block_end])


def unmoved(record_bytes: bytes) -> bytes:
    """Return the record as it was before it was moved; these very bytes if it never was."""
    if len(record_bytes) < FRAME_BYTES or record_bytes[4] != MOVED_CODE:
        return record_bytes
    frame = open_frame(record_bytes, 0)
    code = _moved_from(record_bytes, frame)[1]
    view = memoryview(record_bytes)
    header = bytes(view[frame.header_start + MOVED_BYTES : frame.block_start])
    return b"".join(seal_parts(code, header, view[frame.block_start : frame.block_end]))


# --- deliveries -------------------------------------------------------------------------------------


def delivery(record_bytes: bytes, topic_id: int) -> bytes:
    """Return what a subscriber of one topic gets: these very bytes if they name no other topic.

    Otherwise the record is written again with that topic's placement only, and with its own put numbers: a put to
    several topics takes `count` numbers per topic, one topic after the other.
    """
    if record_bytes[4] in {COMMITTED_CODE, LOST_CODE}:
        raise BadRecord("these rows are read through their splice")
    if record_bytes[4] == STAGED_CODE or topic_id & LOG_BIT or _placement_count(record_bytes) == 1:
        return record_bytes  # Rows of a part are made into a delivery by whoever knows their splice, logs are for nodes.
    record, _ = decode(record_bytes, 0, with_block=True)
    if type(record) is not Stored:
        raise BadRecord("only stored blocks are delivered")
    for index, placement in enumerate(record.placements):
        if placement.topic_id == topic_id:
            first_number = record.first_number + index * record.count
            alone = msgspec.structs.replace(record, placements=(placement,), first_number=first_number)
            return b"".join(encode(alone))
    raise BadRecord(f"the record is not in topic {topic_id}")


def _placement_count(record_bytes: Bytes) -> int:
    found: int = struct.unpack_from("<H", record_bytes, FRAME_BYTES + 68)[0]
    return found


def placed_offset(buffer: Bytes, position: int, size_bytes: int, topic_id: int) -> tuple[int, int, int]:
    """Return (first offset in that topic, count, append time) of what holds messages; check frame and header, not the block."""
    record, next_position = decode(buffer, position)
    if next_position - position != size_bytes:
        raise BadRecord("not the record that was expected")
    if isinstance(record, Stored | Staged | StagedCommitted | Lost):
        for held, first, count, _ in held_in(record):
            if held == topic_id:
                return first, count, record.append_time_us
    raise BadRecord("the record is in another topic")


def held_in(record: Record) -> list[tuple[int, int, int, int]]:
    """Return (topic or storage id, first offset or row, count, bytes that lie elsewhere) of all that a record holds."""
    if type(record) is Stored:  # First and alone: this is every put.
        count = record.count
        held = [(each.topic_id, each.first_offset, count, 0) for each in record.placements if each.first_offset >= 0]
        if record.origin is not None:
            held.append((log_id_of(record.origin.start_id), record.origin.number, 1, 0))
        return held
    match record:
        case Staged():
            return [(record.storage_id, record.first_row, record.count, 0)]
        case StagedCommitted():
            return [(each.topic_id, each.first_offset, each.rows, each.size_bytes) for each in record.topics]
        case Lost():
            return [(each.topic_id, each.first_offset, 1, 0) for each in record.placements]
        case _:
            return []


def append_number_of(record_bytes: bytes) -> int:
    """The append number of a delivery."""
    found: int = struct.unpack_from("<Q", record_bytes, FRAME_BYTES)[0]
    return found


def spliced_delivery(record_bytes: bytes, splice: Splice, topic_id: int) -> bytes:
    """Return rows of a committed part as the stored block that its commit made of them."""
    record, _ = decode(record_bytes, 0, with_block=True)
    if type(record) is not Staged:
        raise BadRecord("only staged blocks are spliced")
    made = Stored(
        splice.append_number + record.chunk - 1,
        splice.append_time_us,
        splice.start_id,
        splice.stream,
        splice.first_number + record.first_row,
        record.count,
        record.block_crc,
        record.block_bytes,
        (Placement(topic_id, splice.first + record.first_row),),
        splice.publisher,
        None,
        record.block,
    )
    return b"".join(encode(made))


def is_delivery_of(record_bytes: bytes, topic_id: int, first_offset: int, count: int) -> bool:
    """Say whether these bytes, as they are, are the delivery of exactly that block: the usual case, in one look."""
    if len(record_bytes) < _ONE_PLACEMENT_END:
        return False
    fields = _FRAME_STORED.unpack_from(record_bytes, 0)
    header_end = FRAME_BYTES + fields[4]
    view = memoryview(record_bytes)
    return (
        fields[14] == 1
        and fields[18:] == (topic_id, first_offset)
        and fields[1:4] == (STORED_CODE, VERSION, 0)
        and fields[11] == count
        and FRAME_BYTES + padded(fields[0]) == len(record_bytes)
        and crc32c(view[FRAME_BYTES:header_end], crc32c(view[:12])) == fields[5]
    )


def decode_delivery(buffer: Bytes, position: int) -> tuple[Delivered, int, int, int]:
    """Return (what was delivered, block start, block end, next position) of the delivery at `position`.

    One unpack for everything but names, because a client does this for every block of a body of many.
    The block itself is not checked: whoever slices it does (model/block.py).
    """
    if position < 0 or len(buffer) - position < _ONE_PLACEMENT_END:
        raise BadRecord("cut short in a delivery")
    (
        length, code, version, reserved, header_length, crc,
        append_number, append_time_us, start_id, stream, first_number, count, block_length, block_crc,
        placement_count, publisher_length, flags, names_length, topic_id, first_offset,
    ) = _FRAME_STORED.unpack_from(buffer, position)  # fmt: skip
    start = position + FRAME_BYTES
    block_start = start + header_length
    next_position = start + padded(length)
    if code != STORED_CODE or version != VERSION or reserved or placement_count != 1 or flags > HAS_ORIGIN | HAS_MORE:
        raise BadRecord("not a delivery")
    names_at = position + _ONE_PLACEMENT_END
    publisher_at = names_at + _ORIGIN.size * (flags & HAS_ORIGIN)
    names_length += publisher_length
    if block_start - start != padded(publisher_at + names_length - start) or header_length + block_length != length:
        raise BadRecord("lengths of a delivery")
    if next_position > len(buffer):
        raise BadRecord("cut short in a delivery")
    view = memoryview(buffer)
    if crc32c(view[start:block_start], crc32c(view[position : position + 12])) != crc:
        raise BadRecord("checksum of a delivery")
    publisher = _text(buffer, publisher_at, publisher_length)
    origin = Origin(*_ORIGIN.unpack_from(buffer, names_at)) if flags & HAS_ORIGIN else None
    delivered = Delivered(
        topic_id, first_offset, count, append_number, append_time_us, start_id, stream, first_number, block_crc, publisher, origin
    )
    return delivered, block_start, block_start + block_length, next_position
