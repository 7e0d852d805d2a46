# SPDX-License-Identifier: Apache-2.0
"""The program `oncemq`: all commands in one place, and what becomes of an error.

May not: do what a command does; show a traceback for anything a user or the world can cause.
The idea: `app` is the list of commands. `run` carries one Output through it and turns every OnceMQError into one line and
an exit code. An InvariantViolated, and whatever nobody expected, is our bug: those keep their traceback.
Next: exits.py for the codes, put.py for a command to copy.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated

import typer

from oncemq.cli import (
    backup,
    chaos,
    clients,
    demo,
    experiment,
    get,
    inspect,
    mesh,
    outbox,
    pipeline,
    put,
    serve,
    shell,
    shutdown,
    sim,
    stats,
    subscribe,
    subscriptions,
    topics,
    torture,
    verify,
)
from oncemq.cli.exits import Exit, table_text
from oncemq.cli.output import Output
from oncemq.errors import InvariantViolated, OnceMQError
from oncemq.version import VERSION

PROGRAM = "oncemq"
MESSAGES, THINGS, BROKER, PROOF = "Messages", "Topics, subscriptions, clients", "The broker and its directory", "See for yourself"
BULK = "In bulk, on Spark"

_commands_of = cache(typer.main.get_command)
"""Reading all commands from their signatures takes as long as most of them do: once in a process is enough."""

app = typer.Typer(
    name=PROGRAM,
    no_args_is_help=True,
    epilog=table_text(),
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _on_version(value: bool) -> None:
    if value:
        typer.echo(f"{PROGRAM} {VERSION}")
        raise typer.Exit


@app.callback()
def _program(
    _version: Annotated[bool, typer.Option("--version", callback=_on_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Put a message on a topic, and every subscriber gets it exactly once, whatever crashes in between.

    oncemq serve data                      run a broker that keeps all in 'data'
    oncemq subscribe orders --id billing   keep messages for 'billing' from now on
    oncemq put orders 'one' 'two'          store two messages
    oncemq get orders --id billing --all   get them, once
    oncemq demo                            kill everybody at random, and count
    """


app.command("put", rich_help_panel=MESSAGES)(put.put)
app.command("get", rich_help_panel=MESSAGES)(get.get)
app.command("subscribe", rich_help_panel=MESSAGES)(subscribe.subscribe)
app.command("unsubscribe", rich_help_panel=MESSAGES)(subscribe.unsubscribe)
app.command("outbox", rich_help_panel=MESSAGES)(outbox.outbox)
app.command("shell", rich_help_panel=MESSAGES)(shell.shell)
app.command("topics", rich_help_panel=THINGS)(topics.list_topics)
app.add_typer(topics.app, name="topic", rich_help_panel=THINGS)
app.add_typer(subscriptions.app, name="subscription", rich_help_panel=THINGS)
app.add_typer(clients.app, name="client", rich_help_panel=THINGS)
app.command("serve", rich_help_panel=BROKER)(serve.serve)
app.command("shutdown", rich_help_panel=BROKER)(shutdown.shutdown)
app.command("stats", rich_help_panel=BROKER)(stats.stats)
app.command("inspect", rich_help_panel=BROKER)(inspect.inspect)
app.command("verify", rich_help_panel=BROKER)(verify.verify)
app.command("backup", rich_help_panel=BROKER)(backup.backup)
app.add_typer(pipeline.app, name="pipeline", rich_help_panel=BULK)
app.command("demo", rich_help_panel=PROOF)(demo.demo)
app.command("sim", rich_help_panel=PROOF)(sim.sim)
app.add_typer(mesh.app, name="mesh", rich_help_panel=PROOF)
app.command("chaos", rich_help_panel=PROOF)(chaos.chaos)
app.command("torture", rich_help_panel=PROOF)(torture.torture)
app.command("experiment", rich_help_panel=PROOF)(experiment.experiment)

if importlib.util.find_spec("oncemq.cli.bench") is not None:
    app.add_typer(importlib.import_module("oncemq.cli.bench").app, name="bench", rich_help_panel=PROOF)


def main() -> None:
    """Run the program and end the process with its exit code."""
    from oncemq.adapters.starter import end_with_starter

    end_with_starter()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; what went wrong is said on stderr."""
    from oncemq.adapters.crash_hook import install_from_environment

    # Commands say what went wrong themselves; only `serve` has a log.
    if not logging.getLogger("oncemq").handlers:
        logging.getLogger("oncemq").addHandler(logging.NullHandler())
    output = Output()
    try:
        install_from_environment()
        ended = _commands_of(app).main(list(arguments), prog_name=PROGRAM, standalone_mode=False, obj=output)
    except typer.TyperException as problem:
        return _on_usage(problem, output, arguments)
    except OnceMQError as error:
        return output.problem(error)
    except InvariantViolated:
        output.failure(
            "bug",
            "OnceMQ contradicted itself and stopped. What is on the disk is older, and right: start it again, and report this",
        )
        raise
    except (typer.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    return ended if isinstance(ended, int) else Exit.OK


def _on_usage(problem: typer.TyperException, output: Output, arguments: Sequence[str]) -> Exit:
    """Say what is wrong with the words that were typed. Without any, help was printed already."""
    if type(problem).__name__ == "NoArgsIsHelpError":
        return Exit.USAGE
    output.is_json = output.is_json or "--json" in arguments
    context = getattr(problem, "ctx", None)
    output.failure("usage_error", problem.format_message().replace("Value error, ", ""))
    if context is not None:
        output.note(f"  try '{context.command_path} --help'")
    return Exit.USAGE
