# SPDX-License-Identifier: Apache-2.0
"""`oncemq shell`: put, get, subscribe and listen by hand, with history and completion. Also reads commands from a pipe.

May not: end because a command failed: it says what went wrong and waits for the next.
The idea: the standard library's line reader; each command is one call of the client.
Next: shell_commands.py.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from oncemq.cli.connecting import connected
from oncemq.cli.exits import Exit
from oncemq.cli.options import DEFAULT_ADDRESS, Address, Json, State, Takeover
from oncemq.cli.output import output_of

DEFAULT_ID = "shell"


def shell(
    context: typer.Context,
    id: Annotated[str, typer.Option("--id", envvar="ONCEMQ_ID", metavar="ID", help="The client id.")] = DEFAULT_ID,
    state: State = None,
    takeover: Takeover = False,
    address: Address = DEFAULT_ADDRESS,
    _json: Json = False,
) -> int:
    """Put, get, subscribe and listen by hand. Tab completes commands and topics; 'help' lists them; Ctrl-D ends it.

    oncemq shell
    oncemq shell --id billing
    echo 'put orders one' | oncemq shell
    """
    from oncemq.cli.shell_commands import Shell, kept_history

    output = output_of(context)
    is_typed = sys.stdin.isatty()
    with connected(output, address, id=id, state=state, takeover=takeover) as client:
        prompt = Shell(output, client, is_typed=is_typed)
        if is_typed:
            output.note(f"{id} at {address}. 'help' lists the commands, Ctrl-D ends it.")
        with kept_history(is_typed=is_typed):
            prompt.run()
    return Exit.FAILED if prompt.failures and not is_typed else Exit.OK
