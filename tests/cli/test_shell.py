# SPDX-License-Identifier: Apache-2.0
"""`oncemq shell` and `oncemq outbox`: by hand, from a pipe, and at a real terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import oncemq
from oncemq.cli.output import Output
from oncemq.cli.shell_commands import Shell as Prompt
from tests.cli.harness import DEADLINE_S, Ended, Program, Shell, wait_until


@pytest.fixture
def typed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """Run the shell on these lines."""

    def begin(*lines: str, id: str = "me") -> Ended:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return shell("shell", "--id", id)

    return begin


def test_put_get_sub_unsub_by_hand(typed: Callable[..., Ended]) -> None:
    lines = "sub orders;put orders one 'two words';subs;get orders;get;get orders 0.1;pending;unsub orders;subs"
    ended = typed(*lines.split(";"))
    assert ended.lines == [
        "orders: subscribed from offset 0",
        "orders: stored at offset 0",
        "orders: stored at offset 1",
        "orders",
        "orders 0: one",
        "orders 1: two words",
        "no messages",
        "0",
        "orders: unsubscribed",
        "no subscriptions",
    ]
    assert ended.code == 0


def test_a_command_that_fails_is_told_and_the_next_one_runs(typed: Callable[..., Ended]) -> None:
    ended = typed("get nothing", "put", "what is this", "put 'open", "sub orders", "pub nobody x", "exit", "never")
    assert ended.lines == ["orders: subscribed from offset 0", "nobody: not stored: no subscribers"]
    assert "no such topic" in ended.err
    assert "say it like this: put TOPIC VALUE..." in ended.err
    assert "there is no command 'what'" in ended.err
    assert "No closing quotation" in ended.err
    assert ended.code == 1


def test_the_names_of_the_command_line_are_understood_too(typed: Callable[..., Ended]) -> None:
    ended = typed("subscribe orders", "publish orders one", "help", "unsubscribe orders", "quit", "never")
    assert ended.lines[:2] == ["orders: subscribed from offset 0", "orders: stored at offset 0"]
    assert ended.lines[-1] == "orders: unsubscribed"
    assert ended.code == 0
    assert "subscribe" not in "".join(ended.lines[2:-1]), "help lists each once"


def test_topics_and_help(typed: Callable[..., Ended]) -> None:
    ended = typed("topics", "sub orders earliest", "topics", "help", "help get")
    assert "no topics" in ended.err
    assert "orders" in ended.text
    assert "Commands ('help NAME' says more)" in ended.text
    assert "without a topic the oldest of all" in ended.text


def test_what_is_in_doubt_is_shown_and_settled(typed: Callable[..., Ended], shell: Shell) -> None:
    from oncemq.client.connect import connect

    typed("sub orders", "put orders one")
    client = connect(shell.address, id="me")
    client.get("orders", timeout=5)
    client.close()
    ended = typed("get orders", "doubt", "settle orders repeat", "get orders")
    assert "may or may not have been handled" in ended.err
    assert ended.lines == ["orders 0: one", "orders 0: one"]


def test_tab_completes_commands_and_topics(shell: Shell) -> None:
    from oncemq.cli.output import Output
    from oncemq.client.connect import connect

    with connect(shell.address, id="me") as client:
        client.subscribe("orders.eu")
        client.subscribe("orders.us")
        prompt = Prompt(Output(), client, is_typed=False)
        assert prompt.completenames("un") == ["unsub"]
        assert prompt.complete_put("orders.e", "put orders.e", 4, 12) == ["orders.eu"]
        assert prompt.complete_get("orders", "get orders", 4, 10) == ["orders.eu", "orders.us"]


@pytest.mark.parametrize("command", ["get orders", "listen orders"])
def test_ctrl_c_at_the_very_moment_a_message_is_taken_loses_nothing(
    shell: Shell, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], command: str
) -> None:
    with oncemq.connect(shell.address, id="me", state=tmp_path / "me") as client:
        client.subscribe("orders")
        client.put("orders", b"one")
        reserve = client._gets.reserve

        def interrupted(*arguments: Any, **named: Any) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            reserve(*arguments, **named)

        client._gets.reserve = interrupted  # type: ignore[method-assign]
        assert Prompt(Output(), client, is_typed=False).onecmd(command) is False
        assert capfdbinary.readouterr().out == b"orders 0: one\n"


@pytest.mark.real
@pytest.mark.parametrize("command", ["listen orders", "get orders 1000"])
@pytest.mark.parametrize("is_away", [False, True])
def test_sigterm_ends_a_command_and_the_shell_with_it(tmp_path: Path, command: str, is_away: bool) -> None:
    """Ctrl-C ends only the command. Whoever sends SIGTERM waits for the process, and what was shown is finished."""
    state = ("--id", "me", "--state", str(tmp_path / "me"))
    with oncemq.Broker(tmp_path / "data") as running:
        program = Program("shell", *state, "--address", running.address, stdin=subprocess.PIPE)
        try:
            assert program.process.stdin is not None
            program.process.stdin.write(f"sub orders\nput orders one\nget orders\n{command}\n".encode())
            program.process.stdin.flush()
            assert [program.line() for _ in range(3)][-1] == "orders 0: one\n"
            wait_until(lambda: _is_caught(program.process.pid, signal.SIGTERM), "the command to run")
            if is_away:
                running.stop()
            program.signal(signal.SIGTERM)
            code = program.process.wait(DEADLINE_S)  # Its input is open: that is not what ended it.
            assert code == 0 or (is_away and code == 1), "a command that found no broker has failed"
            assert "Traceback" not in program.end().err
        finally:
            program.close()
    with oncemq.Broker(tmp_path / "data") as again, oncemq.connect(again.address, id="me", state=tmp_path / "me") as client:
        assert client.get("orders", timeout=0) is None, "it was finished, and is not in doubt"


def _is_caught(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal, as Linux tells."""
    caught = re.search(r"SigCgt:\t(\w+)", Path(f"/proc/{pid}/status").read_text())
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


@pytest.mark.real
def test_at_a_terminal(shell: Shell, tmp_path: Path) -> None:
    """A real pseudo-terminal: prompt, answers, Ctrl-C that ends a listen and not the shell, history in a private file."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"XDG_STATE_HOME": str(tmp_path / "home"), "TERM": "dumb"}
        os.execv(sys.executable, [sys.executable, "-m", "oncemq", "shell", "--address", shell.address])  # noqa: S606 - ours
    try:
        seen = _until(terminal, "oncemq> ")
        os.write(terminal, b"sub orders\n")
        seen += _until(terminal, "subscribed from offset 0")
        os.write(terminal, b"put orders hello\n")
        seen += _until(terminal, "stored at offset 0")
        os.write(terminal, b"listen orders\n")
        seen += _until(terminal, "orders 0: hello")
        os.write(terminal, b"\x03")
        seen += _until(terminal, "oncemq> ")
        os.write(terminal, b"\x04")
        _, status = os.waitpid(pid, 0)
        pid = 0
    finally:
        if pid:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    history = tmp_path / "home" / "oncemq" / "shell-history"
    assert "put orders hello" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600


def _until(terminal: int, text: str) -> str:
    seen, due = "", time.monotonic() + DEADLINE_S
    while text not in seen:
        assert time.monotonic() < due, f"{text!r} did not come; seen: {seen!r}"
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 4096).decode()
    return seen


# --- outbox -----------------------------------------------------------------------------------------


def test_the_outbox_is_shown_and_flushed(
    alone: Shell, shell: Shell, impatience: Callable[[], AbstractContextManager[None]], tmp_path: Path
) -> None:
    state = ("--id", "shop", "--state", tmp_path / "shop")
    shell("subscribe", "orders", "--id", "billing")
    with impatience():
        nowhere = Shell(alone._capture, "tcp://127.0.0.1:9")
        assert nowhere("put", "orders", "one", *state).code == 6
        assert nowhere("put", "orders", "two", *state).code == 6
        shown = nowhere("outbox", *state, "--json")
        assert [row["messages"] for row in shown.json["outbox"]] == [1, 1]
        assert nowhere("outbox", *state, "--flush", "--timeout", "0").code == 6
    assert shell("outbox", *state, "--flush").text == "2 confirmed\n"
    assert "nothing waits" in shell("outbox", *state).err
    assert shell("outbox", *state, "--flush", "--json").json == {"confirmed": 0}
    assert shell("get", "orders", "--id", "billing", "--all").lines == ["one", "two"]
