# SPDX-License-Identifier: Apache-2.0
"""One client's conversation with its broker: Hello once, requests with retries, and everything else that arrives.

May not: number, store or hand out anything; that is the machines' business.
The idea: the caller's thread sends and polls. A request is sent again on a fresh connection when its time is over, with
growing patience, and given up after REQUEST_TRIES with a clear error. What arrives meanwhile goes to whoever it is for.
Next: client/puts.py and client/gets.py, which ride on it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import msgspec

from oncemq import errors
from oncemq.client.alone import Alone, alone
from oncemq.client.state import State
from oncemq.core.identity import hello, is_full, trying, welcomed
from oncemq.core.packets import NOBODY, Blocks, Get, Packet, PutDone, Read, Refused, Welcome
from oncemq.core.publisher import expect_confirmed
from oncemq.crashpoints import reach
from oncemq.errors import BrokerUnreachable, ClientClosed, Diverged, MalformedPacket, OnceMQError, StateLost
from oncemq.limits import BACKOFF_MS, BACKOFF_MS_MAX, JOIN_PATIENCE_MS, REQUEST_TIMEOUT_MS, REQUEST_TRIES
from oncemq.model.refusals import Code, to_error
from oncemq.ports import Clock, Frames, Link, LiveLink
from oncemq.wire.codec import REQUEST_MAX, decode, encode

Block = bytes | bytearray | memoryview

_FATAL = frozenset({Code.FENCED, Code.NO_SESSION, Code.UNKNOWN_STREAM})
"""After these this process can never speak for its client again."""


class Session:
    """The session of this process. `id` is drawn once; Hello is said when the broker is first needed."""

    def __init__(self, link: Link, clock: Clock, state: State, *, session_id: bytes, address: str, takeover: bool) -> None:
        self.id = session_id
        self.alone = self._alone = Alone()
        """Who is inside a call of this client."""
        self.clock = clock
        self.state = state
        self.address = address
        self.welcome: Welcome | None = None
        self.on_put_done: Callable[[int, PutDone], None] = lambda _request, _packet: None
        self.on_put_refused: Callable[[int, Refused], bool] = lambda _request, _packet: False
        self.on_blocks: Callable[[int, Blocks, bytes | memoryview], None] = lambda _request, _packet, _body: None
        self.on_get_refused: Callable[[int, Refused], bool] = lambda _request, _packet: False
        self.on_reset: Callable[[], None] = lambda: None
        self.on_failure: Callable[[], None] = lambda: None
        self.on_welcome: Callable[[Welcome], None] = lambda _: None
        self.pending: Callable[[], tuple[bytes, ...]] = lambda: ()
        self._link = link
        self.takeover = takeover
        self._live: LiveLink | None = None
        self.is_closed = False
        self._request = 0
        self._replies: dict[int, tuple[Packet, bytes | memoryview] | None] = {}
        """Requests that somebody waits for, with the answer once it is there."""
        self._body: bytes | memoryview = b""
        self._failure: OnceMQError | None = None
        self._is_tried = False
        self._is_taken_over = False
        """Whether a life before this one had to be welcomed first, and took over by that."""

    # --- opening ---------------------------------------------------------------------------------------

    def ensure(self, timeout_ms: int | None = None) -> None:
        """Have a session at the broker, within that time; raise what ended it if it ended."""
        if self._failure is not None:
            raise self._failure
        if self.welcome is None:
            self._open(timeout_ms)

    def _open(self, timeout_ms: int | None) -> None:
        """Write the session down, then say Hello. A Welcome is written down before anything else happens."""
        identity = self.state.identity
        if identity.diverged and not self.takeover:
            raise Diverged(identity.diverged)
        if not self._is_tried and is_full(identity):
            self._make_room(timeout_ms)
        self.write_down()
        self.welcome = self._say_hello(self.id, timeout_ms, self.on_welcome)

    def _make_room(self, timeout_ms: int | None) -> None:
        """So many lives reached no broker that no other can be tried: have the newest of them welcomed, late, in place of all."""
        self.state.sync()
        absent = self.state.identity.absent
        welcome = self._say_hello(bytes.fromhex(self.state.identity.tried[-1]), timeout_ms, self._expect_confirmed)
        self._is_taken_over = welcome.taken_over
        self.state.save(msgspec.structs.replace(self.state.identity, absent=absent))

    def _expect_confirmed(self, welcome: Welcome) -> None:
        if not self.takeover:
            expect_confirmed((*welcome.streams, welcome.previous), self.state.confirmed())

    def _say_hello(self, session: bytes, timeout_ms: int | None, compare: Callable[[Welcome], None]) -> Welcome:
        state = self.state
        is_ephemeral, bookmark = not state.is_durable, state.newest_bookmark()
        pending = tuple(stream for stream in self.pending() if stream != session)
        packet = hello(state.identity, session, pending, bookmark, ephemeral=is_ephemeral, takeover=self.takeover)
        reply = self.exchange(packet, timeout_ms)
        if not isinstance(reply, Welcome):
            raise Diverged(f"the broker answered {type(reply).__name__} to Hello")
        if state.identity.log and reply.log_id.hex() != state.identity.log and not self.takeover:
            raise Diverged("this state directory belongs to another broker's log")
        welcome = msgspec.structs.replace(reply, taken_over=reply.taken_over or self._is_taken_over)
        try:
            compare(welcome)
        except Diverged as problem:
            # By now the broker has replaced the session that showed it: without this note the next start would go on in silence.
            state.save(msgspec.structs.replace(state.identity, diverged=problem.what))
            raise
        state.save(welcomed(state.identity, session, reply.log_id))
        return welcome

    def write_down(self) -> None:
        """Have this session among the tried ones, synced: before its Hello, and before anything of its stream is kept.

        The broker takes what an earlier life kept only if its stream is known to be younger than the session it welcomed last.
        """
        if self._is_tried:
            return
        # What the outbox says may be the page cache's word only. Hello makes the broker forget every stream that is not
        # named pending, so an entry that counts as confirmed here must never come back.
        self.state.sync()
        self.state.save(trying(self.state.identity, self.id))
        self._is_tried = True

    @property
    def start_id(self) -> bytes:
        return self.welcome.start_id if self.welcome is not None else NOBODY

    # --- requests --------------------------------------------------------------------------------------

    def patience(self, timeout_ms: int | None) -> Callable[[], int | None]:
        """What tells, whenever it is called, how much of that time is left. None is for ever."""
        started_ms = self.clock.now().ticks_ms
        return lambda: None if timeout_ms is None else max(0, timeout_ms - (self.clock.now().ticks_ms - started_ms))

    def ask(self, packet: Packet, block: Block | None = None, timeout_ms: int | None = None) -> Packet:
        """Send a request of this session and return its answer; raise the refusal otherwise. A node that joins is waited for."""
        left_ms = self.patience(timeout_ms)
        self.ensure(left_ms())
        joining_ms = self.patience(JOIN_PATIENCE_MS)
        while True:
            try:
                return self.exchange(packet, left_ms(), block)
            except errors.Refused as refused:
                if refused.code != Code.JOINING or 0 in (joining_ms(), left_ms()):
                    raise
            self.clock.pause(BACKOFF_MS)

    @alone
    def read_blocks(self, packet: Read) -> tuple[Blocks, bytes | memoryview]:
        """Read a range; needs no session."""
        reply = self.exchange(packet)
        if not isinstance(reply, Blocks):
            raise Diverged(f"the broker answered {type(reply).__name__} to Read")
        return reply, self._body

    @property
    def body(self) -> bytes | memoryview:
        """The records that came with the last Blocks that was waited for."""
        return self._body

    def get_blocks(self, packet: Get) -> tuple[Blocks, bytes | memoryview]:
        """Send a Get of this session and wait for its answer as long as it may be parked at the broker."""
        self.ensure()
        reply = self.exchange(packet, wait_ms=packet.wait_ms)
        if not isinstance(reply, Blocks):
            raise Diverged(f"the broker answered {type(reply).__name__} to Get")
        return reply, self._body

    def exchange(self, packet: Packet, timeout_ms: int | None = None, block: Block | None = None, *, wait_ms: int = 0) -> Packet:
        """Send, wait, send again on a fresh connection; raise BrokerUnreachable in the end, or when the time is over."""
        started_ms = self.clock.now().ticks_ms
        for attempt in range(REQUEST_TRIES):
            if attempt:
                self.restart(attempt)
            patience_ms = wait_ms + (REQUEST_TIMEOUT_MS << attempt)
            if timeout_ms is not None:
                patience_ms = min(patience_ms, max(0, timeout_ms - (self.clock.now().ticks_ms - started_ms)))
            reply = self._attempt(packet, patience_ms, block)
            if reply is not None:
                return reply
            if patience_ms < wait_ms + (REQUEST_TIMEOUT_MS << attempt):
                break
        raise self.unreachable(started_ms, attempt + 1)

    def try_once(self, packet: Packet) -> Packet | None:
        """Send and wait once: for words that may go unheard."""
        return self._attempt(packet, REQUEST_TIMEOUT_MS)

    def _attempt(self, packet: Packet, timeout_ms: int, block: Block | None = None) -> Packet | None:
        request = self.send(packet, block)
        self._replies[request] = None
        try:
            reply = self._await_reply(request, timeout_ms)
        finally:
            del self._replies[request]
        if reply is None:
            return None
        packet, self._body = reply
        if isinstance(packet, Refused):
            raise self.to_error(packet)
        return packet

    def _await_reply(self, request: int, timeout_ms: int) -> tuple[Packet, bytes | memoryview] | None:
        due_ms = self.clock.now().ticks_ms + timeout_ms
        while (reply := self._replies[request]) is None:
            remaining_ms = due_ms - self.clock.now().ticks_ms
            if remaining_ms <= 0:
                return None
            self.receive(remaining_ms)
        return reply

    def restart(self, attempt: int) -> None:
        """Throw the connection away and pause a little: what was in flight will be sent again."""
        self.renew()
        self.clock.pause(min(BACKOFF_MS << attempt, BACKOFF_MS_MAX))

    def renew(self) -> None:
        """Throw the connection away; whoever waits for something on it must ask again."""
        self._link.reset()
        self.on_reset()

    def unreachable(self, started_ms: int, tries: int = REQUEST_TRIES) -> BrokerUnreachable:
        return BrokerUnreachable(self.address, tries, self.clock.now().ticks_ms - started_ms)

    # --- packets ---------------------------------------------------------------------------------------

    def send(self, packet: Packet, block: Block | None = None) -> int:
        """Hand a packet to the network and return its request number."""
        self._expect_open()
        self._request = self._request % REQUEST_MAX + 1
        frame = encode(self._request, packet)
        reach("client.before_send")
        try:
            self._link.send([frame] if block is None else [frame, block])
        except BaseException:
            self.renew()  # Half a packet may be in the socket.
            raise
        reach("client.after_send")
        return self._request

    def receive(self, timeout_ms: int) -> bool:
        """Take one packet if there is one within that time, and hand it to whoever it is for."""
        self._expect_open()
        try:
            frames = self._link.receive(timeout_ms)
            if frames is not None:
                self._on_frames(frames)
        except BaseException:
            self.renew()  # Whatever came out of nowhere: half a packet may be left in the socket, and an answer may be lost.
            raise
        return frames is not None

    def _on_frames(self, frames: Frames) -> None:
        reach("client.after_receive")
        try:
            request, packet = decode(frames[0])
        except (MalformedPacket, IndexError):
            return  # Not of this protocol: as good as lost.
        match packet:
            case PutDone():
                self.on_put_done(request, packet)
            case Blocks():
                self._on_blocks(request, packet, frames[1] if len(frames) > 1 else b"")
            case Refused():
                self._on_refused(request, packet)
            case _ if request in self._replies:
                self._replies[request] = packet, b""

    def _on_blocks(self, request: int, packet: Blocks, body: bytes | memoryview) -> None:
        if request in self._replies:
            self._replies[request] = packet, body
        else:
            self.on_blocks(request, packet, body)

    def _on_refused(self, request: int, packet: Refused) -> None:
        if packet.code in _FATAL:
            self.fail(self.to_error(packet))
        if request in self._replies:
            self._replies[request] = packet, b""
        elif not self.on_put_refused(request, packet):
            self.on_get_refused(request, packet)

    def to_error(self, packet: Refused) -> OnceMQError:
        """Turn a refusal into what a user should read."""
        match packet.code:
            case Code.STATE_LOST:
                return StateLost(self.state.identity.client)
            case Code.DIVERGED:
                return Diverged("it does not have what this client has seen", packet.expected or None)
            case _:
                return to_error(packet.code, packet.text)

    def fail(self, problem: OnceMQError) -> None:
        """End this session: every later call raises this, and what was fetched ahead is not handed out any more."""
        self._failure = problem
        self.on_failure()

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def new_turn(self) -> Callable[[int | None], AbstractContextManager[bool]]:
        """Where one call at a time may be, within so many milliseconds. Those of this session come one after the other anyway."""
        return lambda _timeout_ms: nullcontext(True)

    def open_live(self, address: str) -> LiveLink:
        """Open the live link beside this session's own, in place of an earlier one."""
        if self._live is not None:
            self._live.close()
        self._live = self._link.open_live(address)
        return self._live

    def _expect_open(self) -> None:
        """On an event loop others may be waiting when a client is closed."""
        if self.is_closed:
            raise ClientClosed()

    def close(self) -> None:
        self.is_closed = True
        self._failure = self._failure or ClientClosed()
        if self._live is not None:
            self._live.close()
        self._link.close()
