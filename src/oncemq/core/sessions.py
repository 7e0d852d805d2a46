# SPDX-License-Identifier: Apache-2.0
"""Hello and Goodbye: which process may speak for a client id (R3).

May not: accept a directory that does not know the client's current session, unless the caller takes over aloud.
The idea: one test of random session ids refuses old, cloned and restored directories, containers without their volume,
and the late Hello of a dead process alike. No epochs, no clocks, no order of arrival.
Next: core/streams.py for what a session owns.
"""

from __future__ import annotations

from msgspec.structs import replace

from oncemq.core.departures import forget_records
from oncemq.core.effects import Effects, Sender, answer, refuse
from oncemq.core.packets import NOBODY, Goodbye, GoodbyeDone, Hello, StreamInfo, SubscriptionInfo, Welcome
from oncemq.core.records import SessionClosed, SessionOpened
from oncemq.core.state import BrokerState
from oncemq.core.streams import ClientState
from oncemq.limits import CLIENTS_MAX, SESSIONS_REMEMBERED
from oncemq.model.names import EPHEMERAL_PREFIX, is_client_on_the_wire
from oncemq.model.refusals import Code
from oncemq.ports import Instant


def decide_hello(state: BrokerState, log_id: bytes, to: Sender, packet: Hello, now: Instant, cursors: dict[int, int]) -> Effects:
    """Open a session, repeat the Welcome of this very one, or say why not. `cursors` are written in the same group."""
    client = state.clients.get(packet.client)
    refused = _why_not(state, log_id, packet, client)
    if refused is not None:
        return refuse(to, refused)
    if client is not None and client.session == packet.session:
        return answer(to, _welcome(state, log_id, packet, client.previous, cursors))
    known = packet.known[-SESSIONS_REMEMBERED:]
    record = SessionOpened(packet.client, packet.session, _kept(packet, client), packet.ephemeral, now.wall_us, known)
    return answer(to, _welcome(state, log_id, packet, _previous(client), cursors), record)


def _why_not(state: BrokerState, log_id: bytes, packet: Hello, client: ClientState | None) -> Code | None:
    is_ephemeral_name = packet.client.startswith(EPHEMERAL_PREFIX)
    if not is_client_on_the_wire(packet.client) or packet.ephemeral != is_ephemeral_name:
        return Code.INVALID_NAME
    if packet.session == NOBODY or packet.session in packet.pending or len(set(packet.pending)) != len(packet.pending):
        return Code.MALFORMED
    if packet.log_id not in {NOBODY, log_id} or (_has_another_past(state, packet) and not packet.takeover):
        return Code.DIVERGED
    if client is None:
        return _why_not_new(state, packet)
    if packet.session in client.past:
        return Code.FENCED  # A late copy: whoever took over from that session must not be fenced by it, takeover or not.
    if packet.takeover or client.session == packet.session or client.session in packet.known:
        return None
    return Code.DIVERGED if client.session in packet.past else Code.STATE_LOST


def _has_another_past(state: BrokerState, packet: Hello) -> bool:
    """Whether the directory has seen what this log does not have."""
    return packet.append_number > 0 and not state.belongs(packet.start_id, packet.append_number)


def _why_not_new(state: BrokerState, packet: Hello) -> Code | None:
    """A client this broker has never heard of must not claim a past here; then it is the broker that went back."""
    if packet.log_id != NOBODY and not packet.takeover:
        return Code.DIVERGED
    return Code.TOO_MANY if len(state.clients) >= CLIENTS_MAX else None


def _kept(packet: Hello, client: ClientState | None) -> tuple[bytes, ...]:
    """The older streams that may still be sent: those known here, and those whose session came after the current one.

    Any other is not begun: the directory may be an old copy that somebody has taken over with, now or one session ago, and
    what it holds as pending may have been stored, and forgotten, long ago.
    """
    if client is None:
        return packet.pending
    later = packet.known[packet.known.index(client.session) + 1 :] if client.session in packet.known else ()
    return tuple(stream for stream in packet.pending if stream in client.streams or stream in later)


def _previous(client: ClientState | None) -> StreamInfo:
    if client is None:
        return StreamInfo(NOBODY, 0)
    return StreamInfo(client.session, client.streams[client.session].last)


def _welcome(state: BrokerState, log_id: bytes, packet: Hello, previous: StreamInfo, cursors: dict[int, int]) -> Welcome:
    """What the client will be told once its session is synced. Streams are as they will be after the record."""
    client = state.clients.get(packet.client)
    known = client.streams if client is not None else {}
    is_known = previous.stream in {NOBODY, *packet.known} and not _has_another_past(state, packet)
    taken_over = packet.takeover and not is_known
    is_repeat = client is not None and client.session == packet.session
    pending = [stream for stream in packet.pending if stream in known] if is_repeat else _kept(packet, client)
    streams = tuple(StreamInfo(stream, known[stream].last if stream in known else 0) for stream in (*pending, packet.session))
    subscriptions = subscriptions_of(state, client, cursors) if client is not None else ()
    return Welcome(packet.client, packet.session, log_id, state.start_id, streams, previous, taken_over, subscriptions)


def subscriptions_of(state: BrokerState, client: ClientState, cursors: dict[int, int]) -> tuple[SubscriptionInfo, ...]:
    found = (
        state.topics[topic_id].describe(state.subscriptions[subscription_id])
        for topic_id, subscription_id in client.subscriptions.items()
    )
    return tuple(replace(info, cursor=max(info.cursor, cursors.get(info.subscription_id, 0))) for info in found)


def decide_goodbye(state: BrokerState, client: ClientState, to: Sender, packet: Goodbye) -> Effects:
    """Close a session. An ephemeral client is gone with everything it had; a durable one stays known."""
    if not client.ephemeral:
        return answer(to, GoodbyeDone(packet.session), SessionClosed(client.name, packet.session))
    return answer(to, GoodbyeDone(packet.session), *forget_records(state, client))
