# SPDX-License-Identifier: Apache-2.0
"""Options and arguments that several commands share, each written once.

May not: import what `oncemq --help` does not need.
The idea: a command's parameter is annotated with one of these; the name, the environment variable and the help text
are then the same everywhere.
Next: connecting.py, which turns them into a client.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from oncemq.cli.completion import complete_topic
from oncemq.cli.output import output_of
from oncemq.errors import UsageError
from oncemq.limits import PORT_REQUEST

DEFAULT_ADDRESS = f"tcp://127.0.0.1:{PORT_REQUEST}"
ID_MAX = 2**63 - 1
"""The largest offset or id the wire can carry."""


def _on_json(context: typer.Context, value: bool) -> bool:
    """Remember it before anything else is read, so that a usage error is said in JSON too."""
    if value:
        output_of(context).is_json = True
    return value


def refuse_others(context: typer.Context, what: str, allowed: Iterable[str]) -> None:
    """Refuse whatever was said besides, and would not be looked at."""
    taken = {"json", "_json", *allowed}
    for option in context.command.params:
        source = context.get_parameter_source(option.name) if option.name else None
        if source is not None and source.name != "DEFAULT" and option.name not in taken:
            raise UsageError(f"{option.opts[0]} means nothing {what}: leave one of them out")


Json = Annotated[
    bool,
    typer.Option("--json", help="Write JSON instead of text.", callback=_on_json, is_eager=True),
]
Address = Annotated[
    str,
    typer.Option("--address", "-a", envvar="ONCEMQ_ADDRESS", metavar="ADDRESS", help="Where the broker listens."),
]
ClientId = Annotated[
    str,
    typer.Option("--id", envvar="ONCEMQ_ID", metavar="ID", help="The client id: who subscribes, and who gets."),
]
OptionalClientId = Annotated[
    str | None,
    typer.Option(
        "--id",
        envvar="ONCEMQ_ID",
        metavar="ID",
        help="Put as this client: what it puts is kept until it is confirmed, and stored exactly once.",
    ),
]
State = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", help="The client's state directory. Without it: this user's, per address and id."),
]
Takeover = Annotated[
    bool,
    typer.Option("--takeover", help="Go on although the earlier state directory of this id is lost."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=complete_topic)]
DataDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="The broker's data directory.")]
