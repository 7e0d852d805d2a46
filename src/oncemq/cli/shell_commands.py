# SPDX-License-Identifier: Apache-2.0
"""The commands of `oncemq shell`: one method each, named as people type it.

May not: hold a rule: every line is a call of the client. Lose a message to Ctrl-C: it is noticed before one is taken or after it
is shown.
Next: client/client.py.
"""

from __future__ import annotations

import cmd
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from oncemq.cli.messages import as_line
from oncemq.cli.output import Output
from oncemq.cli.put import as_text
from oncemq.cli.signals import StopAsked
from oncemq.errors import OnceMQError, UsageError

if TYPE_CHECKING:
    from oncemq.client.client import Client
    from oncemq.model.message import Message

HISTORY_LINES_MAX = 1_000
_TURN_S = 0.5
"""How long Ctrl-C may go unnoticed while there is no message."""
_ALSO = {"publish", "subscribe", "unsubscribe", "quit"}
"""Names that are understood and not listed."""


@contextmanager
def kept_history(*, is_typed: bool) -> Iterator[None]:
    """Remember what was typed from one time to the next, where the terminal can."""
    try:
        import readline
    except ImportError:  # Not every Python has it; then there is no history.
        is_typed = False
    if not is_typed:
        yield
        return
    import platformdirs

    path = Path(platformdirs.user_state_dir("oncemq")) / "shell-history"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(0o600)
    with suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(HISTORY_LINES_MAX)
    try:
        yield
    finally:
        with suppress(OSError):
            readline.write_history_file(path)


class Shell(cmd.Cmd):
    """Type 'help NAME' for what a command does."""

    doc_header = "Commands ('help NAME' says more):"

    def __init__(self, output: Output, client: Client, *, is_typed: bool) -> None:
        super().__init__(stdin=sys.stdin, stdout=sys.stdout)
        self.prompt = "oncemq> " if is_typed else ""
        self.use_rawinput = is_typed
        self.failures = 0
        self._output = output
        self._client = client
        self._is_ended = False

    def run(self) -> None:
        """Take commands until the end. Ctrl-C ends the command at hand, not the shell."""
        while True:
            try:
                self.cmdloop()
            except KeyboardInterrupt:
                self._output.note("")
            else:
                return

    def onecmd(self, line: str) -> bool:
        try:
            return bool(super().onecmd(line)) or self._is_ended
        except OnceMQError as problem:
            self.failures += 1
            self._output.problem(problem)
        except ValueError as problem:  # Quotes that are not closed.
            self.failures += 1
            self._output.failure("usage_error", str(problem))
        return self._is_ended

    def emptyline(self) -> bool:
        return False

    def default(self, line: str) -> None:
        if line == "EOF":
            return
        raise UsageError(f"there is no command {line.split(maxsplit=1)[0]!r}: 'help' lists them")

    def precmd(self, line: str) -> str:
        return "exit" if line == "EOF" else line

    # --- messages --------------------------------------------------------------------------------------

    def do_put(self, line: str) -> None:
        """put TOPIC VALUE...    store each value as a message"""
        topic, *values = self._words(line, 2, "put TOPIC VALUE...")
        for value in values:
            receipt = self._client.put(topic, value.encode())
            self._output.result({"topic": topic, "stored": receipt.stored, "offset": receipt.offset}, as_text(receipt))

    do_pub = do_publish = do_put

    def do_get(self, line: str) -> None:
        """get [TOPIC] [SECONDS]    the next message, waiting so long (default 0); without a topic the oldest of all"""
        words = self._words(line, 0, "get [TOPIC] [SECONDS]")
        left_s = float(words.pop()) if words and _is_number(words[-1]) else 0.0
        topic = words[0] if words else None
        with self._stoppable() as stop:
            message = self._client.get(topic, timeout=min(left_s, _TURN_S))
            while message is None and not stop.is_set and (left_s := left_s - _TURN_S) > 0:
                message = self._client.get(topic, timeout=min(left_s, _TURN_S))
            if message is not None:
                self._show(message)
            elif not stop.is_set:
                self._output.result({"message": None}, "no messages")

    def do_listen(self, line: str) -> None:
        """listen [TOPIC]    show messages as they come, until Ctrl-C"""
        words = self._words(line, 0, "listen [TOPIC]")
        with self._stoppable() as stop, self._client.listen(*words[:1]) as listener:
            while not stop.is_set:
                message = listener.next(timeout=_TURN_S)
                if message is not None:
                    self._show(message)

    def do_settle(self, line: str) -> None:
        """settle TOPIC repeat|skip    say what to do with messages that were handed out before a crash"""
        topic, choice, *_ = self._words(line, 2, "settle TOPIC repeat|skip")
        self._client.settle(topic, choice)

    def do_doubt(self, line: str) -> None:
        """doubt [TOPIC]    show messages that were handed out before a crash"""
        words = self._words(line, 0, "doubt [TOPIC]")
        for message in self._client.in_doubt(words[0] if words else None):
            self._show(message)

    # --- subscriptions and topics ----------------------------------------------------------------------

    def do_sub(self, line: str) -> None:
        """sub TOPIC [earliest]    subscribe, from now on or from the first message there is"""
        topic, *start = self._words(line, 1, "sub TOPIC [earliest]")
        info = self._client.subscribe(topic, start[0] if start else "new")
        self._output.result({"topic": topic, "start": info.start}, f"{topic}: subscribed from offset {info.start}")

    do_subscribe = do_sub

    def do_unsub(self, line: str) -> None:
        """unsub TOPIC    end the subscription"""
        (topic, *_) = self._words(line, 1, "unsub TOPIC")
        self._client.unsubscribe(topic)
        self._output.result({"topic": topic, "unsubscribed": True}, f"{topic}: unsubscribed")

    do_unsubscribe = do_unsub

    def do_subs(self, _: str) -> None:
        """subs    the topics this client subscribes to"""
        found = self._client.subscriptions()
        self._output.result({"subscriptions": found}, "\n".join(found) or "no subscriptions")

    def do_topics(self, _: str) -> None:
        """topics    all topics of the broker, with their offsets"""
        rows = [{"topic": info.topic, "low": info.low, "end": info.end} for info in self._client.topics()]
        self._output.rows("topics", rows, empty="no topics")

    def do_pending(self, _: str) -> None:
        """pending    how many puts are not confirmed yet"""
        self._output.result({"pending": self._client.pending}, str(self._client.pending))

    def do_exit(self, _: str) -> bool:
        """exit    end the shell (or Ctrl-D)"""
        return True

    do_quit = do_exit

    def get_names(self) -> list[str]:
        """What 'help' lists and Tab completes: each command under one name. Whoever types the long one is understood as well."""
        return [name for name in super().get_names() if name.removeprefix("do_") not in _ALSO]

    # --- completion ------------------------------------------------------------------------------------

    def _complete_topic(self, text: str, *_: object) -> list[str]:
        with suppress(OnceMQError):
            return sorted(info.topic for info in self._client.topics() if info.topic.startswith(text))
        return []

    complete_put = complete_pub = complete_publish = complete_sub = complete_subscribe = _complete_topic
    complete_settle = complete_doubt = _complete_topic

    def _complete_subscription(self, text: str, *_: object) -> list[str]:
        with suppress(OnceMQError):
            return [topic for topic in self._client.subscriptions() if topic.startswith(text)]
        return []

    complete_get = complete_listen = complete_unsub = complete_unsubscribe = _complete_subscription

    # --- inside ----------------------------------------------------------------------------------------

    @contextmanager
    def _stoppable(self) -> Iterator[StopAsked]:
        """While a command waits: Ctrl-C ends the command, SIGTERM the shell as well, even if the command fails first."""
        with StopAsked() as stop:
            try:
                yield stop
            finally:
                self._is_ended = self._is_ended or stop.is_final

    @staticmethod
    def _words(line: str, least: int, usage: str) -> list[str]:
        words = shlex.split(line)
        if len(words) < least:
            raise UsageError(f"say it like this: {usage}")
        return words

    def _show(self, message: Message) -> None:
        is_json = self._output.is_json
        prefix = b"" if is_json else f"{message.topic} {message.offset}: ".encode()
        sys.stdout.buffer.write(prefix + as_line(message, is_json=is_json))
        sys.stdout.buffer.flush()


def _is_number(word: str) -> bool:
    return word.replace(".", "", 1).isdigit()
