# SPDX-License-Identifier: Apache-2.0
"""`oncemq demo`: kill a broker again and again while messages flow, then count what every subscriber got.

May not: count what it did not read from the files of those it happened to.
The idea: a real broker, a publisher and three subscribers, all processes. When the publisher reaches a mark the broker is
killed (SIGKILL) and started again at the same address. In the end put, got, lost and twice are compared.
Next: demo_stage.py for the processes, demo_roles.py for what they do.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncemq.cli.exits import Exit
from oncemq.cli.options import Json
from oncemq.cli.output import Output, output_of

if TYPE_CHECKING:
    from oncemq.cli.demo_display import Display
    from oncemq.cli.demo_stage import Actor, Stage

SUBSCRIBERS = 3
_DRAIN_S = 60.0
_LOOK_S = 0.05


def demo(
    context: typer.Context,
    messages: Annotated[int, typer.Option(min=1, help="How many messages to put.")] = 20_000,
    kills: Annotated[int, typer.Option(min=0, max=100, help="How often to kill the broker.")] = 5,
    _json: Json = False,
) -> int:
    """Kill a broker while messages flow to three subscribers, and count: lost and twice must be 0.

    Everything happens in a temporary directory on a free port. Exit code 1 if a message was lost or came twice; the
    directory is then kept.

    oncemq demo
    oncemq demo --messages 100000 --kills 20
    """
    from oncemq.cli.demo_stage import DemoFailed

    output = output_of(context)
    directory = Path(tempfile.mkdtemp(prefix="oncemq-demo-"))
    is_right = False
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # Either signal ends all processes of the demo.
    try:
        is_right = _perform(output, directory, messages, kills)
    except DemoFailed as failed:
        output.failure("demo_failed", str(failed))
    except KeyboardInterrupt:
        is_right = True  # Nothing is wrong with what is there: nobody needs it.
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        if is_right:
            shutil.rmtree(directory)
        else:
            output.warn(f"kept for a look: {directory}")
    return Exit.OK if is_right else Exit.FAILED


def _perform(output: Output, directory: Path, messages: int, kills: int) -> bool:
    from oncemq.cli.demo_display import Display
    from oncemq.cli.demo_stage import Stage

    started = time.monotonic()
    names = [f"subscriber-{number + 1}" for number in range(SUBSCRIBERS)]
    with Stage(directory) as stage, Display(output, directory, ["publisher", *names], messages) as display:
        subscribers = [stage.role("listen", name) for name in names]
        for subscriber in subscribers:
            subscriber.first_line()
        marks = [str(messages * (number + 1) // (kills + 1)) for number in range(kills)]
        killed = _publish(stage, stage.role("publish", "publisher", str(messages), *marks), display)
        _drain(subscribers, display)
        if stage.broker.end() != Exit.OK:
            raise stage.broker.failed("did not stop cleanly")
    rows = [_counted(directory, name) for name in names]
    is_right = all(row["lost"] == row["twice"] == 0 and row["put"] == row["got"] == messages for row in rows)
    _report(output, rows, killed, time.monotonic() - started)
    return is_right


def _publish(stage: Stage, publisher: Actor, display: Display) -> int:
    """Let the publisher run to its end; whenever it says that it reached a mark, kill the broker."""
    killed = 0
    while (line := publisher.line(_LOOK_S)) != "":
        if line is not None:
            pid, down_s = stage.broker.pid, stage.kill_broker()
            killed += 1
            display.say(f"kill -9 {pid} after {int(line):,} messages; broker {stage.broker.pid} is back after {down_s:.1f} s")
        display.update()
    if publisher.wait(_DRAIN_S) != 0:
        raise publisher.failed("failed")
    return killed


def _drain(subscribers: list[Actor], display: Display) -> None:
    """Everything is put: let the subscribers take what is left, and end."""
    for subscriber in subscribers:
        if subscriber.process.stdin is not None:
            subscriber.process.stdin.close()
    deadline = time.monotonic() + _DRAIN_S
    while any(subscriber.process.poll() is None for subscriber in subscribers):
        if time.monotonic() > deadline:
            raise subscribers[0].failed("and the others did not come to an end")
        subscribers[0].line(_LOOK_S)
        display.update()
    for subscriber in subscribers:
        if subscriber.wait(0) != 0:
            raise subscriber.failed("failed")


def _counted(directory: Path, name: str) -> dict[str, object]:
    """Compare what was confirmed with what a subscriber wrote down."""
    from oncemq.cli.demo_roles import facts_in

    put = facts_in(directory / "publisher").read_bytes().split()
    got = facts_in(directory / name).read_bytes().split()
    times = Counter(got)
    return {
        "subscriber": name,
        "put": len(put),
        "got": len(got),
        "lost": len(set(put) - times.keys()),
        "twice": sum(count - 1 for count in times.values()),
    }


def _report(output: Output, rows: list[dict[str, object]], kills: int, seconds: float) -> None:
    if output.is_json:
        output.card({"kills": kills, "seconds": round(seconds, 1), "subscribers": rows})
        return
    output.rows("subscribers", [dict(row) for row in rows], empty="")
    lost, twice = (sum(int(str(row[key])) for row in rows) for key in ("lost", "twice"))
    output.line(f"the broker was killed {kills} times in {seconds:.1f} s: {lost} lost, {twice} twice")
