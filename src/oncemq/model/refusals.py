# SPDX-License-Identifier: Apache-2.0
"""The registry of refusal codes: what travels on the wire, what it means, which exception it becomes.

May not: be written anywhere else. docs/protocol.md lists the same codes; a test compares.
The idea: codes are stable and short, texts are for people and may change. `final` codes are outcomes of a put
(journaled, never retried); the others consume nothing.
Next: core/puts.py and core/commands.py, which refuse; client/ turns codes back into exceptions.
"""

from __future__ import annotations

from enum import StrEnum

from oncemq import errors


class Code(StrEnum):
    """Why a broker says no."""

    # Not a packet we can read.
    BAD_VERSION = "bad_version"
    UNKNOWN_PACKET = "unknown_packet"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    # Names.
    INVALID_NAME = "invalid_name"
    NO_SUCH_TOPIC = "no_such_topic"
    TOPIC_EXISTS = "topic_exists"
    NO_SUCH_SUBSCRIPTION = "no_such_subscription"
    NO_SUCH_CLIENT = "no_such_client"
    NOT_SUBSCRIBED = "not_subscribed"
    ALREADY_SUBSCRIBED = "already_subscribed"
    # Sessions.
    NO_SESSION = "no_session"
    FENCED = "fenced"
    STATE_LOST = "state_lost"
    DIVERGED = "diverged"
    WRONG_START = "wrong_start"
    # Puts.
    GAP_IN_STREAM = "gap_in_stream"
    UNKNOWN_STREAM = "unknown_stream"
    CONFLICTING_PUT = "conflicting_put"
    CORRUPT_BLOCK = "corrupt_block"
    NO_SUBSCRIBERS = "no_subscribers"
    DISK_FULL = "disk_full"
    # Staged parts.
    NO_SUCH_PART = "no_such_part"
    BATCH_WENT_BACK = "batch_went_back"
    BATCH_MISSING = "batch_missing"
    # Gets and commands.
    WRONG_AUTHORITY = "wrong_authority"
    BEYOND_END = "beyond_end"
    CURSOR_MOVED = "cursor_moved"
    LATE_COMMAND = "late_command"
    TOO_MANY = "too_many"
    STOPPING = "stopping"
    # Nodes of a mesh.
    JOINING = "joining"
    NOT_IN_A_MESH = "not_in_a_mesh"
    NOT_A_NODE = "not_a_node"


TEXTS: dict[Code, str] = {
    Code.BAD_VERSION: "this broker speaks another version of the protocol: use matching versions of oncemq",
    Code.UNKNOWN_PACKET: "there is no packet of that type",
    Code.MALFORMED: "the packet cannot be read",
    Code.TOO_LARGE: "the packet, block or value is over the limit",
    Code.INVALID_NAME: "that name is not valid: dot-separated words of ASCII letters, digits, '_' and '-', at most 255 bytes",
    Code.NO_SUCH_TOPIC: "there is no such topic: subscribe to it, or create it with 'oncemq topic create'",
    Code.TOPIC_EXISTS: "that topic exists already",
    Code.NO_SUCH_SUBSCRIPTION: "there is no such subscription: see 'oncemq subscription list'",
    Code.NO_SUCH_CLIENT: "there is no such client: see 'oncemq client list'",
    Code.NOT_SUBSCRIBED: "this client is not subscribed to that topic: subscribe first",
    Code.ALREADY_SUBSCRIBED: "this client is already subscribed to that topic: go on with get",
    Code.NO_SESSION: "no session of that id is open here: say Hello first",
    Code.FENCED: "a newer session of this client id took over: this process must stop using it",
    Code.STATE_LOST: "this client id was last used with another state directory",
    Code.DIVERGED: "the broker's history is not the one this bookmark was taken from",
    Code.WRONG_START: "that was meant for an earlier start of this broker",
    Code.GAP_IN_STREAM: "an earlier put of this stream is missing: send from the expected number on",
    Code.UNKNOWN_STREAM: "no such put stream: name it pending in Hello",
    Code.CONFLICTING_PUT: (
        "that put number was used for other bytes: two copies of this client's state directory are in use. "
        "Keep the newer one, and connect with it once with takeover"
    ),
    Code.CORRUPT_BLOCK: "the block's checksum or layout is wrong",
    Code.NO_SUBSCRIBERS: "nobody subscribes to that topic and nothing retains it",
    Code.DISK_FULL: "the broker's disk is full: puts are taken again when there is space",
    Code.NO_SUCH_PART: "a staged part is gone, or is not the one that was staged: run the batch again",
    Code.BATCH_WENT_BACK: "a later batch of this query is committed already: its checkpoint was set back, or used by two queries",
    Code.BATCH_MISSING: "the batch before this one was never committed here: the broker was set back, or is another one",
    Code.WRONG_AUTHORITY: "this subscription is consumed in another way: one of get, receive or database, fixed by its first use",
    Code.BEYOND_END: "that offset lies beyond the end of the topic",
    Code.CURSOR_MOVED: "the subscription is not where this transaction began: its messages were finished by somebody else",
    Code.LATE_COMMAND: "a later command of this session was already carried out",
    Code.TOO_MANY: "a limit on the number of topics, subscriptions, clients or waiting gets is reached",
    Code.STOPPING: "the broker is stopping",
    Code.JOINING: "this node has not joined its mesh yet: try again in a moment, or see 'oncemq mesh status'",
    Code.NOT_IN_A_MESH: "a node of a mesh takes no staged parts: put the messages, or write to a broker that is no node",
    Code.NOT_A_NODE: "this broker is no node of a mesh: see 'oncemq serve --mesh'",
}

FINAL_FOR_PUTS: frozenset[Code] = frozenset({Code.INVALID_NAME, Code.TOO_LARGE, Code.NO_SUBSCRIBERS})
"""Refusals that are the one durable outcome of a put number. All others consume nothing."""

TRANSIENT_FOR_PUTS: frozenset[Code] = frozenset({Code.DISK_FULL, Code.STOPPING, Code.TOO_MANY, Code.JOINING})
"""The same packet may be taken later: a client waits and sends it again."""

_CLASSES: dict[Code, type[errors.Refused]] = {
    Code.NO_SUCH_TOPIC: errors.NoSuchTopic,
    Code.NOT_SUBSCRIBED: errors.NotSubscribed,
    Code.ALREADY_SUBSCRIBED: errors.AlreadySubscribed,
    Code.NO_SUBSCRIBERS: errors.NoSubscribers,
    Code.WRONG_AUTHORITY: errors.WrongAuthority,
    Code.FENCED: errors.Fenced,
    Code.DISK_FULL: errors.BrokerFull,
    Code.CONFLICTING_PUT: errors.ConflictingPut,
}


def to_error(code: str, text: str) -> errors.Refused:
    """Return the exception a client raises for a refusal."""
    known = Code(code) if code in Code._value2member_map_ else None
    return _CLASSES.get(known, errors.Refused)(code, text) if known else errors.Refused(code, text)
