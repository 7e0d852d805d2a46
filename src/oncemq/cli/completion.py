# SPDX-License-Identifier: Apache-2.0
"""Completes topic names from the running broker while a command is being typed.

May not: keep a shell waiting, or say a word when there is no broker.
The idea: one question on a bare link, one short wait. A client with its retries would take seconds to give up.
Next: options.py, where it is attached.
"""

from __future__ import annotations

import os
from contextlib import closing

import typer

_WAIT_MS = 200


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that begin like this; none if the broker does not answer at once."""
    from oncemq.errors import OnceMQError

    chosen = context.params.get("address") or os.environ.get("ONCEMQ_ADDRESS")
    try:
        names = _topics(str(chosen) if chosen else None)
    except OnceMQError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def _topics(address: str | None) -> list[str]:
    from oncemq.adapters.zmq_link import ZmqLink
    from oncemq.cli.options import DEFAULT_ADDRESS
    from oncemq.core.packets import ListTopics, Topics
    from oncemq.wire.codec import decode, encode

    with closing(ZmqLink(address or DEFAULT_ADDRESS)) as link:
        link.send([encode(1, ListTopics())])
        frames = link.receive(_WAIT_MS)
    if not frames:
        return []
    _, packet = decode(frames[0])
    return [topic.topic for topic in packet.topics] if isinstance(packet, Topics) else []
