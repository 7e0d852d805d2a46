# SPDX-License-Identifier: Apache-2.0
"""Packet to ZeroMQ frames and back. tests/golden holds the bytes of every packet.

May not: raise anything but MalformedPacket on bytes from outside.
The idea: the first frame is `version u8 · type u8 · reserved u16 · request u32` (little-endian), then one msgpack array;
a block or records follow as a second frame where the packet has one. Limits are checked before anything is parsed.
A plain REQ socket puts an empty frame before the packet; whoever does gets the answer the same way.
Next: docs/protocol.md, the same for people who write a client in another language.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from oncemq.core.packets import CODE_OF, PACKETS, CommitStaged, Packet, Put, Stage, Transact
from oncemq.errors import MalformedPacket
from oncemq.limits import BLOCK_BYTES_MAX, FRAMES_MAX, HEADER_BYTES_MAX, WIRE_VERSION
from oncemq.model.refusals import Code
from oncemq.ports import Frames

_HEAD = struct.Struct("<BBHI")
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS: dict[int, Any] = {code: msgspec.msgpack.Decoder(kind) for code, kind in PACKETS.items()}
REQUEST_MAX = 2**32 - 1


def encode(request: int, packet: Packet) -> bytes:
    """Return the first frame of a packet."""
    return _HEAD.pack(WIRE_VERSION, CODE_OF[type(packet)], 0, request) + _ENCODER.encode(packet)


def decode(frame: bytes | memoryview) -> tuple[int, Packet]:
    """Return (request, packet) of a first frame; raise MalformedPacket if it is none of ours."""
    if len(frame) < _HEAD.size:
        raise MalformedPacket(Code.MALFORMED, "shorter than a packet's head")
    version, code, reserved, request = _HEAD.unpack_from(frame)
    if version != WIRE_VERSION:
        raise MalformedPacket(Code.BAD_VERSION, f"version {version}")
    decoder = _DECODERS.get(code)
    if decoder is None or reserved:
        raise MalformedPacket(Code.UNKNOWN_PACKET, f"type {code}")
    try:
        return request, decoder.decode(memoryview(frame)[_HEAD.size :])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise MalformedPacket(Code.MALFORMED, str(problem)) from problem


def decode_from_client(frames: Frames) -> tuple[int, Packet, bytes | memoryview]:
    """Return (request, packet, block) of what a client sent, an empty delimiter already taken off."""
    if not 1 <= len(frames) < FRAMES_MAX:
        raise MalformedPacket(Code.MALFORMED, f"{len(frames)} frames")
    if len(frames[0]) > HEADER_BYTES_MAX:
        raise MalformedPacket(Code.TOO_LARGE, f"first frame of {len(frames[0]):,} bytes")
    request, packet = decode(frames[0])
    if CODE_OF[type(packet)] >= 64:
        raise MalformedPacket(Code.UNKNOWN_PACKET, "that packet only a broker sends")
    wanted = 2 if isinstance(packet, Put | Stage | CommitStaged) or (isinstance(packet, Transact) and packet.puts) else 1
    if len(frames) != wanted:
        raise MalformedPacket(Code.MALFORMED, f"{len(frames)} frames where {wanted} belong")
    if wanted == 1:
        return request, packet, b""
    if len(frames[1]) > BLOCK_BYTES_MAX:
        raise MalformedPacket(Code.TOO_LARGE, f"block of {len(frames[1]):,} bytes")
    return request, packet, frames[1]


def request_of(frames: Frames) -> int:
    """The request number of a packet that could not be read, so that its refusal finds its way; 0 if there is none."""
    if frames and len(frames[0]) >= _HEAD.size:
        return int(_HEAD.unpack_from(frames[0])[3])
    return 0
