# SPDX-License-Identifier: Apache-2.0
"""`oncemq topics` and `oncemq topic create | show | delete`.

May not: read a message.
Next: client/admin.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oncemq.cli.connecting import asking
from oncemq.cli.options import DEFAULT_ADDRESS, Address, Json, TopicName, Yes
from oncemq.cli.output import Row, output_of
from oncemq.cli.questions import is_agreed

if TYPE_CHECKING:
    from oncemq.core.packets import TopicInfo

app = typer.Typer(help="Create, look at and delete one topic.", no_args_is_help=True)


def as_row(topic: TopicInfo) -> Row:
    from oncemq.model.retention import readable

    return {
        "topic": topic.topic,
        "messages": topic.end - topic.low,
        "low": topic.low,
        "end": topic.end,
        "size_bytes": topic.size_bytes,
        "subscriptions": topic.subscriptions,
        "retain": readable(topic.retain),
        "limit": readable(topic.limit),
        "explicit": topic.explicit,
    }


def list_topics(context: typer.Context, address: Address = DEFAULT_ADDRESS, _json: Json = False) -> None:
    """List the topics: messages stored, first and end offset, size, subscriptions.

    oncemq topics
    oncemq topics --json
    """
    output = output_of(context)
    with asking(output, address) as client:
        found = sorted(client.topics(), key=lambda topic: topic.topic)
    output.rows("topics", [as_row(topic) for topic in found], empty="no topics: subscribe to one, or 'oncemq topic create NAME'")


@app.command("create")
def create(
    context: typer.Context,
    topic: TopicName,
    retain: Annotated[str, typer.Option(metavar="TIME|SIZE", help="Keep messages this long: 7d, 10GiB, forever.")] = "",
    limit: Annotated[
        str, typer.Option(metavar="TIME|SIZE", help="Drop messages beyond this, even if somebody misses them.")
    ] = "",
    address: Address = DEFAULT_ADDRESS,
    _json: Json = False,
) -> None:
    """Create a topic that lives until it is deleted. A subscription creates its topic by itself.

    oncemq topic create orders --retain 7d
    oncemq topic create metrics --retain forever --limit 10GiB
    """
    from oncemq.model.names import check_topic

    output = output_of(context)
    check_topic(topic)
    with asking(output, address) as client:
        created = client.admin.create_topic(topic, retain=retain, limit=limit)
    output.result(as_row(created), f"topic {topic!r} created")


@app.command("show")
def show(context: typer.Context, topic: TopicName, address: Address = DEFAULT_ADDRESS, _json: Json = False) -> None:
    """Show one topic and who subscribes to it.

    oncemq topic show orders
    """
    from oncemq.cli.subscriptions import as_row as subscription_row
    from oncemq.model.names import check_topic
    from oncemq.model.refusals import TEXTS, Code, to_error

    output = output_of(context)
    with asking(output, address) as client:
        found = client.admin.topics(check_topic(topic))
        rows = [subscription_row(row) for row in client.admin.subscriptions(topic)]
    if not found:
        raise to_error(Code.NO_SUCH_TOPIC, TEXTS[Code.NO_SUCH_TOPIC])
    if output.is_json:
        output.card(dict(as_row(found[0])) | {"subscriptions": rows})
        return
    output.card(as_row(found[0]))
    output.rows("subscriptions", rows, empty="nobody subscribes to it")


@app.command("delete")
def delete(
    context: typer.Context, topic: TopicName, yes: Yes = False, address: Address = DEFAULT_ADDRESS, _json: Json = False
) -> None:
    """Delete a topic with its messages and subscriptions. On a terminal it asks first.

    oncemq topic delete orders --yes
    """
    from oncemq.model.names import check_topic

    output = output_of(context)
    check_topic(topic)
    if not is_agreed(f"Delete topic {topic!r} with its messages and subscriptions?", yes=yes):
        raise typer.Abort
    with asking(output, address) as client:
        client.admin.delete_topic(topic)
    output.result({"topic": topic, "deleted": True}, f"topic {topic!r} deleted")
