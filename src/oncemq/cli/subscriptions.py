# SPDX-License-Identifier: Apache-2.0
"""`oncemq subscription list | delete`: all subscriptions of a broker, whoever they belong to.

May not: consume anything.
Next: subscribe.py for a client's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oncemq.cli.completion import complete_topic
from oncemq.cli.connecting import asking
from oncemq.cli.options import DEFAULT_ADDRESS, ID_MAX, Address, Json, Yes
from oncemq.cli.output import Row, output_of
from oncemq.cli.questions import is_agreed

if TYPE_CHECKING:
    from oncemq.core.packets import SubscriptionRow

app = typer.Typer(help="List and delete subscriptions of all clients.", no_args_is_help=True)


def as_row(row: SubscriptionRow) -> Row:
    found = row.info
    return {
        "topic": found.topic,
        "client": row.client,
        "cursor": found.cursor,
        "end": found.end,
        "waiting": max(0, found.end - max(found.cursor, found.low)),
        "start": found.start,
        "authority": found.authority,
        "id": str(found.subscription_id),
    }


@app.command("list")
def list_subscriptions(
    context: typer.Context,
    topic: Annotated[str, typer.Option(help="Only those of this topic.", autocompletion=complete_topic)] = "",
    address: Address = DEFAULT_ADDRESS,
    _json: Json = False,
) -> None:
    """List subscriptions: who, how far, and how many messages are waiting.

    oncemq subscription list
    oncemq subscription list --topic orders --json
    """
    from oncemq.model.names import check_topic

    output = output_of(context)
    with asking(output, address) as client:
        found = client.admin.subscriptions(check_topic(topic) if topic else "")
    rows = sorted((as_row(row) for row in found), key=lambda row: (str(row["topic"]), str(row["client"])))
    output.rows("subscriptions", rows, empty="no subscriptions")


@app.command("delete")
def delete(
    context: typer.Context,
    subscription: Annotated[
        int, typer.Argument(metavar="ID", min=0, max=ID_MAX, help="Its id, as 'oncemq subscription list' shows it.")
    ],
    yes: Yes = False,
    address: Address = DEFAULT_ADDRESS,
    _json: Json = False,
) -> None:
    """Delete a subscription whose client will not come back. What it has not got is no longer kept for it.

    oncemq subscription delete 4611686018427387904 --yes
    """
    output = output_of(context)
    if not is_agreed(f"Delete subscription {subscription}?", yes=yes):
        raise typer.Abort
    with asking(output, address) as client:
        client.admin.delete_subscription(subscription)
    output.result({"id": str(subscription), "deleted": True}, f"subscription {subscription} deleted")
