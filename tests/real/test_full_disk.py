# SPDX-License-Identifier: Apache-2.0
"""A disk that really is full: puts wait, gets and acknowledgements go on, and when space is back so are the puts.

May not: pass where no file system can be mounted: it is skipped there and says why, or fails if ONCEMQ_MUST_MOUNT is set.
The idea: the broker's directory lies on a small tmpfs. What is refused is kept by the publisher and confirmed later; in
the end everything put was got, each once, in order.
Next: harness.py.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

import oncemq
from oncemq.errors import WorldError
from oncemq.limits import KIB, MIB
from tests.real.harness import DEADLINE_S, Stage, until

pytestmark = pytest.mark.real

DISK_BYTES = 44 * MIB
SEGMENT_BYTES = 8 * MIB
VALUE_BYTES = 100 * KIB
BATCH = 10
CYCLES = 3


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        reason = f"no file system can be mounted here: {mounted.stderr.strip()}"
        (pytest.fail if os.environ.get("ONCEMQ_MUST_MOUNT") else pytest.skip)(reason)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


class Traffic:
    """One publisher and one subscriber of the test itself, and what they put and got."""

    def __init__(self, stage: Stage, clients: ExitStack) -> None:
        address, home = stage.broker.address, stage.directory
        self.subscriber = clients.enter_context(oncemq.connect(address, id="subscriber", state=home / "subscriber"))
        self.publisher = clients.enter_context(oncemq.connect(address, id="publisher", state=home / "publisher"))
        self.subscriber.subscribe("t")
        self.put: list[bytes] = []
        self.got: list[bytes] = []

    def put_until_refused(self) -> oncemq.PutPending:
        """Put until the broker takes no more; what it did not take is kept by the client."""
        for _ in range(DISK_BYTES // VALUE_BYTES):
            values = [b"%d " % (len(self.put) + number) + b"." * VALUE_BYTES for number in range(BATCH)]
            self.put += [value.split()[0] for value in values]
            try:
                self.publisher.put_many("t", values)
            except oncemq.PutPending as problem:
                return problem
        raise AssertionError("the disk never got full")

    def get_what_there_is(self) -> None:
        """Get and acknowledge everything that is stored."""
        info = next(info for info in self.subscriber.topics() if info.topic == "t")
        while len(self.got) < info.end:
            messages = self.subscriber.get_many("t", 50, timeout=DEADLINE_S)
            assert messages, f"only {len(self.got)} of {info.end} came"
            self.got += [message.value.split()[0] for message in messages]
        self.subscriber.ack("t")

    def has_flushed(self) -> bool:
        with suppress(oncemq.PutPending):
            self.publisher.flush()
        return self.publisher.pending == 0

    def refusals(self) -> int:
        return self.publisher.admin.stats().values.get("count_refused_disk_full", 0)

    def finish(self) -> None:
        """In the end everything put was got, each once, in order."""
        until(self.has_flushed, "puts are taken again")
        self.get_what_there_is()
        assert self.got == self.put


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def full_stage(disk: Path, make_stage: Callable[..., Stage]) -> Stage:
    """A broker whose directory lies on the small disk."""
    stage = make_stage(segment_bytes=SEGMENT_BYTES)
    stage.broker.directory = disk / "broker"
    stage.broker.start()
    return stage


def test_puts_wait_for_space_while_gets_go_on(full_stage: Stage, clients: ExitStack) -> None:
    """Several times full and free again: what is got and acknowledged makes room for what waits."""
    traffic = Traffic(full_stage, clients)
    for _ in range(CYCLES):
        before = traffic.refusals()
        pending = traffic.put_until_refused()
        assert pending.pending > 0
        assert "disk is full" in str(pending)
        assert traffic.refusals() > before
        assert len(traffic.got) < len(traffic.put)
        traffic.get_what_there_is()
        until(traffic.has_flushed, "space comes back")
    traffic.finish()
    assert len(traffic.got) == len(set(traffic.got)) > CYCLES * BATCH


def test_puts_resume_when_somebody_else_frees_the_disk(full_stage: Stage, clients: ExitStack, disk: Path) -> None:
    """Another program fills the disk and cleans up: nobody has to restart anything."""
    traffic = Traffic(full_stage, clients)
    ballast = fill(disk)
    traffic.put_until_refused()
    assert not traffic.has_flushed()
    assert traffic.subscriber.topics(), "questions are answered"
    traffic.subscriber.subscribe("another")
    ballast.unlink()
    traffic.finish()


def test_a_broker_killed_on_a_full_disk_starts_again_and_loses_nothing(full_stage: Stage, clients: ExitStack, disk: Path) -> None:
    """Its start needs a segment: the reserve is there for it, and it serves gets before there is any space."""
    traffic = Traffic(full_stage, clients)
    ballast = fill(disk)
    traffic.put_until_refused()
    for _ in range(2):
        full_stage.broker.kill()
        full_stage.broker.start()
    traffic.get_what_there_is()
    assert 0 < len(traffic.got) < len(traffic.put)
    ballast.unlink()
    traffic.finish()


def test_a_broker_that_cannot_start_for_lack_of_space_says_so(full_stage: Stage, clients: ExitStack, disk: Path) -> None:
    """No space and no reserve: a clear error and an exit code, nothing touched; with space it starts."""
    traffic = Traffic(full_stage, clients)
    traffic.publisher.put("t", b"0 kept")
    traffic.put.append(b"0")
    full_stage.broker.kill()
    for name in ("reserve", "reserve.new"):
        with suppress(FileNotFoundError):
            (full_stage.broker.directory / name).unlink()
    ballast = fill(disk)
    assert not full_stage.broker.start(may_die=True)
    assert full_stage.broker.process.wait() > 0
    assert "no space left" in full_stage.broker.process.log
    ballast.unlink()
    full_stage.broker.start()
    traffic.finish()


def fill(disk: Path) -> Path:
    """Take all the space that is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (MIB, 4 * KIB):
            with suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    return ballast


def test_a_state_directory_on_a_full_disk_refuses_to_put(disk: Path, make_stage: Callable[..., Stage]) -> None:
    """A client that cannot keep a message says so before anything leaves it; what it has is still confirmed."""
    stage = make_stage()
    stage.broker.start()
    stage.keep_everything()
    with oncemq.connect(stage.broker.address, id="publisher", state=disk / "state") as client:
        assert client.put("t", b"publisher:1").stored
        ballast = fill(disk)
        number = 1
        with pytest.raises(WorldError, match="no space left"):
            for number in range(2, 200):
                client.put("t", f"publisher:{number}".encode().ljust(MIB, b"."))
        ballast.unlink()
        client.put("t", f"publisher:{number}".encode())
    stage.assert_stored_once(range(1, number + 1))
