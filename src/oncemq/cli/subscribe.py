# SPDX-License-Identifier: Apache-2.0
"""`oncemq subscribe` and `oncemq unsubscribe`: what is kept for a client, from when on, until when.

May not: get a message.
Next: get.py.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from oncemq.cli.connecting import connected
from oncemq.cli.options import DEFAULT_ADDRESS, ID_MAX, Address, ClientId, Json, State, Takeover, TopicName
from oncemq.cli.output import output_of
from oncemq.errors import Diverged, Refused, UsageError

if TYPE_CHECKING:
    from oncemq.client.client import Client
    from oncemq.core.packets import SubscriptionInfo


def subscribe(
    context: typer.Context,
    topic: TopicName,
    id: ClientId,
    start: Annotated[
        str, typer.Option(metavar="WHERE", help="new, earliest, an offset, or a time like 2026-08-01T12:00Z.")
    ] = "new",
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="It is fine if the subscription exists already.")] = False,
    state: State = None,
    takeover: Takeover = False,
    address: Address = DEFAULT_ADDRESS,
    _json: Json = False,
) -> None:
    """Subscribe a client to a topic: from now on every message put there is kept until this client has it.

    The topic is created if it does not exist. A time without an offset from UTC is local time; what counts is when the
    broker stored a message.

    oncemq subscribe orders --id billing
    oncemq subscribe orders --id audit --start earliest
    """
    from oncemq.model.names import check_topic

    output = output_of(context)
    begin = read_start(start)
    check_topic(topic)
    with connected(output, address, id=id, state=state, takeover=takeover) as client:
        done = _subscribed(client, topic, begin, exist_ok=exist_ok)
    row = {
        "topic": topic,
        "client": id,
        "id": str(done.subscription_id),
        "start": done.start,
        "cursor": done.cursor,
        "end": done.end,
    }
    output.result(row, f"{id!r} is subscribed to {topic!r} from offset {done.start}")


def _subscribed(client: Client, topic: str, begin: str | int | datetime, *, exist_ok: bool) -> SubscriptionInfo:
    """Subscribe. An offset that was typed and lies beyond the end is a wrong offset, not a broker that went back."""
    try:
        return client.subscribe(topic, begin, exist_ok=exist_ok)
    except Diverged as diverged:
        if not isinstance(begin, int) or diverged.last_common is None:
            raise
        raise Refused("beyond_end", f"offset {begin} lies beyond the end of {topic!r}, which is {diverged.last_common}") from None


def unsubscribe(
    context: typer.Context,
    topic: TopicName,
    id: ClientId,
    state: State = None,
    takeover: Takeover = False,
    address: Address = DEFAULT_ADDRESS,
    _json: Json = False,
) -> None:
    """End a client's subscription. What it has not got is no longer kept for it.

    oncemq unsubscribe orders --id billing
    """
    from oncemq.model.names import check_topic

    output = output_of(context)
    check_topic(topic)
    with connected(output, address, id=id, state=state, takeover=takeover) as client:
        client.unsubscribe(topic)
    output.result({"topic": topic, "client": id, "unsubscribed": True}, f"{id!r} is no longer subscribed to {topic!r}")


def read_start(text: str) -> str | int | datetime:
    """Turn what was typed into what `Client.subscribe` takes."""
    if text in {"new", "earliest"}:
        return text
    if text.isascii() and text.isdigit() and int(text) <= ID_MAX:
        return int(text)
    try:
        time = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        time = None
    if time is None or time.timestamp() < 0:
        raise UsageError(f"--start {text[:60]!r}: use new, earliest, an offset, or a time like 2026-08-01T12:00Z")
    return time
