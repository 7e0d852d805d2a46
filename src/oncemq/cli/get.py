# SPDX-License-Identifier: Apache-2.0
"""`oncemq get`: messages to stdout, each acknowledged only after it was written out and flushed (R7).

May not: acknowledge what was not written: if whoever reads stdout goes away, the message at hand stays in doubt.
The idea: get one, write it, flush, acknowledge, and so on. A signal is noticed between two messages, never inside one.
Next: messages.py for how a message is written, getting.py for the loop.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from oncemq.cli.completion import complete_topic
from oncemq.cli.connecting import connected
from oncemq.cli.exits import Exit
from oncemq.cli.options import DEFAULT_ADDRESS, Address, ClientId, Json, State, Takeover
from oncemq.cli.output import output_of
from oncemq.cli.signals import StopAsked
from oncemq.errors import UsageError


class InDoubtChoice(StrEnum):
    RAISE = "raise"
    REPEAT = "repeat"
    SKIP = "skip"


def get(
    context: typer.Context,
    id: ClientId,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="The topic; or --any.", autocompletion=complete_topic)
    ] = None,
    is_any: Annotated[bool, typer.Option("--any", help="The oldest unread message over all subscriptions.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="How many messages at most. Without it: one.")] = None,
    is_all: Annotated[bool, typer.Option("--all", help="All that are there.")] = False,
    wait: Annotated[float, typer.Option("--wait", "-w", min=0, metavar="SECONDS", help="How long to wait for a message.")] = 0,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on for ever, until Ctrl-C; also while the broker is away.")
    ] = False,
    in_doubt: Annotated[
        InDoubtChoice, typer.Option(help="What to do with messages that were handed out when an earlier run was killed.")
    ] = InDoubtChoice.RAISE,
    skip_damaged: Annotated[bool, typer.Option("--skip-damaged", help="Go on behind messages whose bytes are damaged.")] = False,
    state: State = None,
    takeover: Takeover = False,
    address: Address = DEFAULT_ADDRESS,
    _json: Json = False,
) -> int:
    """Get the next message of a topic this client subscribes to, and write its value and a newline.

    A message is acknowledged once it was written and flushed; then it never comes again. With --json every message is
    an object on a line of its own. Ends with exit code 1 if there is no message.

    oncemq get orders --id billing
    oncemq get orders --id billing --all > orders.txt
    oncemq get --any --id billing --follow --json
    oncemq get orders --id billing --in-doubt repeat
    """
    from oncemq.cli.getting import Plan, Reading
    from oncemq.model.names import check_topic

    if (topic is None) != is_any:
        raise UsageError("name a topic, or use --any")
    if is_all and (count is not None or follow):
        raise UsageError("--all stands alone: use it without --count and --follow")
    if topic is not None:
        check_topic(topic)  # Before anybody is asked: a name that cannot be is no question for a broker.
    output = output_of(context)
    is_endless = is_all or (follow and count is None)
    plan = Plan(topic, None if is_endless else count or 1, wait, follow=follow, skip_damaged=skip_damaged)
    with connected(output, address, id=id, state=state, in_doubt=in_doubt, takeover=takeover) as client, StopAsked() as stop:
        reading = Reading(output, client, plan)
        reading.run(stop)
    if not reading.written and not follow and not reading.was_told:
        return output.failure("no_messages", "no messages", Exit.FAILED)
    return Exit.TOLD if reading.was_told else Exit.OK
