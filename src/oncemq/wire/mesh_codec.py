# SPDX-License-Identifier: Apache-2.0
"""Packets between nodes to ZeroMQ frames and back. tests/golden holds the bytes of every packet.

May not: raise anything but MalformedPacket on bytes from outside.
The idea: the first frame is `version u8 · type u8 · length of the address u16` (little-endian), the sender's address, then one
msgpack array; `Spread` has a block as second frame. Packets may come together, one behind the other. Type codes are the mesh's
own: nodes do not listen where clients do.
Next: docs/mesh.md, the same for people.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from oncemq.errors import MalformedPacket
from oncemq.limits import BLOCK_BYTES_MAX, HEADER_BYTES_MAX, MESH_ADDRESS_BYTES_MAX, MESH_LINK_PACKETS, MIB, WIRE_VERSION
from oncemq.mesh.packets import MESH_CODE_OF, MESH_PACKETS, Address, MeshPacket, Spread
from oncemq.model.refusals import Code
from oncemq.ports import Frames

_HEAD = struct.Struct("<BBH")
_SPREAD = bytes((MESH_CODE_OF[Spread],))
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS: dict[int, Any] = {code: msgspec.msgpack.Decoder(kind) for code, kind in MESH_PACKETS.items()}


def encode(sender: Address, packet: MeshPacket) -> bytes:
    """Return the first frame of a packet."""
    address = sender.encode()
    return _HEAD.pack(WIRE_VERSION, MESH_CODE_OF[type(packet)], len(address)) + address + _ENCODER.encode(packet)


def apart(frames: Frames) -> Iterator[Frames]:
    """Yield the packets of frames that came together, one behind the other: a type says how many frames there are.

    No node sends more together than may wait in a link, or than a block and a little: what is more stays whole, and is none.
    """
    if len(frames) > 2 * MESH_LINK_PACKETS or sum(map(len, frames)) > BLOCK_BYTES_MAX + MIB:
        yield frames
        return
    at = 0
    while at < len(frames):
        count = 2 if bytes(frames[at][1:2]) == _SPREAD else 1
        yield frames[at : at + count]
        at += count


def decode(frames: Frames) -> tuple[Address, MeshPacket, bytes | memoryview]:
    """Return (sender, packet, block) of what a node sent; raise MalformedPacket if it is none of ours."""
    if not frames or not _HEAD.size <= len(frames[0]) <= HEADER_BYTES_MAX:
        raise MalformedPacket(Code.MALFORMED, "a first frame that is no packet's")
    version, code, address_bytes = _HEAD.unpack_from(frames[0])
    if version != WIRE_VERSION:
        raise MalformedPacket(Code.BAD_VERSION, f"version {version}")
    decoder = _DECODERS.get(code)
    if decoder is None:
        raise MalformedPacket(Code.UNKNOWN_PACKET, f"type {code} between nodes")
    if not 1 <= address_bytes <= MESH_ADDRESS_BYTES_MAX:
        raise MalformedPacket(Code.MALFORMED, f"an address of {address_bytes} bytes")
    body_at = _HEAD.size + address_bytes
    try:
        sender = bytes(frames[0][_HEAD.size : body_at]).decode()
        packet = decoder.decode(memoryview(frames[0])[body_at:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise MalformedPacket(Code.MALFORMED, str(problem)) from problem
    return sender, packet, _block_of(packet, frames)


def _block_of(packet: MeshPacket, frames: Frames) -> bytes | memoryview:
    wanted = 2 if isinstance(packet, Spread) else 1
    if len(frames) != wanted:
        raise MalformedPacket(Code.MALFORMED, f"{len(frames)} frames where {wanted} belong")
    if wanted == 1:
        return b""
    if len(frames[1]) > BLOCK_BYTES_MAX:
        raise MalformedPacket(Code.TOO_LARGE, f"block of {len(frames[1]):,} bytes")
    return frames[1]
