# SPDX-License-Identifier: Apache-2.0
"""Types the console blocks of a page into a shell, one after the other, and compares what comes back with what the page says.

May not: know a page. A page is a story: its blocks run in one shell and one directory, in order.
The idea: `$ ` begins what is typed, the lines below it are what is printed, stdout and stderr as they come. `…` stands for
anything within a line, and alone on a line for any lines. Ports of the page are other ones here, so that a broker of
yours is left alone; what is printed is read with the page's ports.
Next: test_readme.py, test_operating.py.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from oncemq.cli.options import DEFAULT_ADDRESS
from oncemq.cli.torturing.ports import reserve_port

_DEADLINE_S = 240.0
_PORT = re.compile(r"(127\.0\.0\.1:)(\d+)")


class Typed(NamedTuple):
    """One command, and the lines that a page shows below it."""

    command: str
    expected: list[str]


def fenced(page: str, language: str) -> list[str]:
    """Return the blocks of that language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)


def typed(block: str) -> list[Typed]:
    """Return what is typed in a console block, with what is printed."""
    found: list[Typed] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(Typed(line[2:], []))
        elif line.startswith("> ") and not found[-1].expected:
            found[-1] = Typed(f"{found[-1].command}\n{line[2:]}", [])
        else:
            found[-1].expected.append(line)
    return found


def agrees(expected: list[str], printed: list[str]) -> bool:
    """Whether these lines are what a page shows: `…` is anything in a line, and any lines where it stands alone."""
    pattern = "".join("(?:.*\n)*?" if line.strip() == "…" else _line_pattern(line) for line in expected)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


def _line_pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.rstrip().split("…")) + " *\n"


class Console:
    """A shell in a directory, as a reader has it: this project's commands first on the path, nobody's state."""

    def __init__(self, directory: Path) -> None:
        self._ports: dict[str, str] = {}
        state = {"XDG_STATE_HOME": str(directory / "state"), "ONCEMQ_ADDRESS": self._with_ports(DEFAULT_ADDRESS)}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=os.environ | state | {"PATH": path, "COLUMNS": "200", "TERM": "dumb"},
            start_new_session=True,
        )
        self._marks = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End the shell and every job it started: all of them are one process group."""
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        for stream in (self._shell.stdin, self._shell.stdout):
            if stream is not None:
                stream.close()

    def type(self, step: Typed) -> list[str]:
        """Type one command and return what was printed until it ended. A job (`&`) is given time to say what is expected."""
        self._marks += 1
        mark = f"--- {self._marks} ---"
        self._say(f"{self._with_ports(step.command)}\necho; echo '{mark}'\n")
        printed = self._read_until(mark)
        deadline = time.monotonic() + _DEADLINE_S
        while step.command.endswith("&") and not agrees(step.expected, printed) and time.monotonic() < deadline:
            printed += self._read_until(None)
        return printed

    def _with_ports(self, text: str) -> str:
        """Put a free port in the place of each port of the page."""
        return _PORT.sub(lambda found: f"{found[1]}{self._ports.setdefault(found[2], str(reserve_port()))}", text)

    def _as_on_the_page(self, text: str) -> str:
        back = {ours: theirs for theirs, ours in self._ports.items()}
        return _PORT.sub(lambda found: found[1] + back.get(found[2], found[2]), text)

    def _say(self, text: str) -> None:
        if self._shell.stdin is None:
            return
        with suppress(BrokenPipeError):
            self._shell.stdin.write(text.encode())
            self._shell.stdin.flush()

    def _read_until(self, mark: str | None) -> list[str]:
        """Return the lines up to a mark, or those that are there within a moment."""
        stream = self._shell.stdout
        if stream is None:
            return []
        content = b""
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            wanted = f"\n{mark}\n".encode() if mark else None
            deadline = time.monotonic() + (_DEADLINE_S if mark else 0.2)
            while (left := deadline - time.monotonic()) > 0:
                if not selector.select(left):
                    break
                piece = os.read(stream.fileno(), 65_536)
                content += piece
                if not piece or (wanted is not None and wanted in content):
                    break
        text = self._as_on_the_page(content.decode())
        lines = text.removesuffix(f"\n{mark}\n").splitlines() if mark else text.splitlines()
        return [line for line in lines if not re.match(r"bash: line \d+: +\d+ (Killed|Terminated)", line)]
