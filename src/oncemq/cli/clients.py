# SPDX-License-Identifier: Apache-2.0
"""`oncemq client list | forget`: the clients a broker knows.

May not: speak for any of them.
Next: client/admin.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oncemq.cli.connecting import asking
from oncemq.cli.options import DEFAULT_ADDRESS, Address, Json, Yes
from oncemq.cli.output import Row, output_of
from oncemq.cli.questions import is_agreed
from oncemq.errors import InvalidName

if TYPE_CHECKING:
    from oncemq.core.packets import ClientRow

app = typer.Typer(help="List the clients a broker knows, and make it forget one.", no_args_is_help=True)


def as_row(row: ClientRow) -> Row:
    return {
        "client": row.client,
        "subscriptions": row.subscriptions,
        "put_streams": row.streams,
        "last_put": row.last_number,
        "ephemeral": row.ephemeral,
        "session": row.session.hex(),
    }


@app.command("list")
def list_clients(context: typer.Context, address: Address = DEFAULT_ADDRESS, _json: Json = False) -> None:
    """List the clients: subscriptions, put streams, and the last put number of the current session.

    oncemq client list
    """
    output = output_of(context)
    with asking(output, address) as client:
        found = sorted(client.admin.clients(), key=lambda row: row.client)
    output.rows("clients", [as_row(row) for row in found], empty="no clients")


@app.command("forget")
def forget(
    context: typer.Context,
    client_id: Annotated[str, typer.Argument(metavar="ID", help="The client to forget.")],
    yes: Yes = False,
    address: Address = DEFAULT_ADDRESS,
    _json: Json = False,
) -> None:
    """Forget a client that will not come back, with its subscriptions and put streams.

    A client that does come back is told so (diverged), and starts over with --takeover.

    oncemq client forget billing --yes
    """
    from oncemq.model.names import is_client_on_the_wire

    output = output_of(context)
    if not is_client_on_the_wire(client_id):
        raise InvalidName("client id", client_id)
    if not is_agreed(f"Forget client {client_id!r} with its subscriptions?", yes=yes):
        raise typer.Abort
    with asking(output, address) as client:
        client.admin.forget_client(client_id)
    output.result({"client": client_id, "forgotten": True}, f"client {client_id!r} forgotten")
