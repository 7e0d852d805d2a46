# SPDX-License-Identifier: Apache-2.0
"""A client's life: connecting, being away, closing, and what its directory remembers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import oncemq
from oncemq.adapters.zmq_live import beside
from oncemq.client.connect import state_directory
from tests.client.conftest import Connect

NOWHERE = "tcp://127.0.0.1:9"
"""The discard port: nobody listens there."""


def get_value(client: oncemq.Client, topic: str) -> bytes | None:
    message = client.get(topic, timeout=0.2)
    return None if message is None else message.value


# --- in doubt -------------------------------------------------------------------------------------------


def test_leaving_the_with_block_finishes_the_last_message(connect: Connect, topic: str) -> None:
    """R7: without an exception, whatever was handed out is done."""
    with connect() as client:
        client.subscribe(topic)
        client.put_many(topic, [b"a", b"b"])
        assert get_value(client, topic) == b"a"
    with connect() as client:
        assert client.in_doubt() == []
        assert [get_value(client, topic) for _ in range(2)] == [b"b", None]


@pytest.mark.parametrize("how", ["exception", "close", "_abandon"])
def test_ending_in_any_other_way_leaves_it_in_doubt(connect: Connect, topic: str, how: str) -> None:
    """R7, G4: an exception, close() alone, or death: nobody knows whether it was handled."""
    client = connect()
    client.subscribe(topic)
    client.put_many(topic, [b"a", b"b", b"c"])
    assert get_value(client, topic) == b"a"
    assert get_value(client, topic) == b"b"
    if how == "exception":
        with pytest.raises(KeyError), client:
            raise KeyError
    else:
        getattr(client, how)()
    client = connect()
    for _ in range(2):
        with pytest.raises(oncemq.InDoubt, match="messages 1 to 1 of topic"):
            client.get(topic, timeout=0.2)
        with pytest.raises(oncemq.InDoubt):
            client.get(timeout=0.2)
    assert [message.value for message in client.in_doubt(topic)] == [b"b"]
    with pytest.raises(oncemq.UsageError, match="'repeat' or 'skip'"):
        client.settle(topic, "forget")
    client.settle(topic, "repeat")
    assert [get_value(client, topic) for _ in range(3)] == [b"b", b"c", None]


@pytest.mark.parametrize(("choice", "rest"), [("repeat", [b"b", b"c", None]), ("skip", [b"c", None, None])])
def test_what_is_in_doubt_can_be_chosen_at_connect(connect: Connect, topic: str, choice: str, rest: list[bytes | None]) -> None:
    """Repeat is at least once, skip is at most once."""
    client = connect()
    client.subscribe(topic)
    client.put_many(topic, [b"a", b"b", b"c"])
    assert [get_value(client, topic) for _ in range(2)] == [b"a", b"b"]
    client._abandon()
    client = connect(in_doubt=choice)
    assert [get_value(client, topic) for _ in range(3)] == rest


def test_an_in_doubt_topic_does_not_hold_up_another(connect: Connect, topic: str) -> None:
    """H22: each subscription for itself; a get or ack elsewhere finishes nothing here."""
    doubtful, fine = f"{topic}.doubtful", f"{topic}.fine"
    client = connect()
    for name in (doubtful, fine):
        client.subscribe(name)
        client.put_many(name, [b"1", b"2"])
    assert get_value(client, doubtful) == b"1"
    assert [get_value(client, fine) for _ in range(2)] == [b"1", b"2"]
    client.ack(fine)
    client._abandon()
    client = connect()
    assert get_value(client, fine) is None
    with pytest.raises(oncemq.InDoubt):
        client.get(doubtful, timeout=0.2)


# --- closed ---------------------------------------------------------------------------------------------


def test_a_closed_client_says_so(connect: Connect, topic: str) -> None:
    """Every call; closing twice is fine."""
    client = connect()
    client.subscribe(topic)
    client.put_many(topic, [b"a", b"b", b"c"])
    assert get_value(client, topic) == b"a"
    assert client.close() == 0
    assert client.close() == 0
    assert "closed" in repr(client)
    for call in (
        lambda: client.put(topic, b"x"),
        lambda: client.put(topic, b"x", wait=False),
        lambda: client.put_many(topic, [b"x"]),
        lambda: client.get(topic, timeout=0),
        lambda: client.get(timeout=0),
        lambda: client.get_many(topic, timeout=0),
        lambda: client.ack(topic),
        lambda: client.subscribe(topic),
        lambda: client.unsubscribe(topic),
        client.flush,
        client.topics,
        client.subscriptions,
        lambda: client.read(topic, 0, 1),
        client.in_doubt,
        lambda: client.settle(topic, "skip"),
    ):
        with pytest.raises(oncemq.ClientClosed, match="connect again"):
            call()


def test_closing_sends_what_was_put_without_waiting(connect: Connect, topic: str) -> None:
    """The last messages of a program are not forgotten."""
    reader = connect("reader")
    reader.subscribe(topic)
    with connect("writer") as writer:
        writer.put(topic, b"last words", wait=False)
    assert get_value(reader, topic) == b"last words"


# --- ephemeral ------------------------------------------------------------------------------------------


def test_a_client_without_an_id_leaves_nothing_behind(broker: oncemq.Broker, connect: Connect, topic: str) -> None:
    """It subscribes and puts like any other; with it go its subscriptions, and a topic that only it kept."""
    watcher = connect("watcher")
    with oncemq.connect(broker.address) as client:
        client.subscribe(topic)
        client.put(topic, b"x")
        assert get_value(client, topic) == b"x"
        assert client.id.startswith("$ephemeral.")
        assert client.id in {row.client for row in watcher.admin.clients()}
    assert client.id not in {row.client for row in watcher.admin.clients()}
    assert topic not in {info.topic for info in watcher.topics()}


def test_a_state_directory_needs_an_id(tmp_path: Path) -> None:
    """What it remembers must belong to somebody."""
    with pytest.raises(oncemq.UsageError, match="needs an id"):
        oncemq.connect(NOWHERE, state=tmp_path / "state", offline=True)
    assert not (tmp_path / "state").exists()


# --- addresses ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
def test_an_unreachable_broker_is_told_with_its_address_and_what_to_do(tmp_path: Path) -> None:
    """D0.10: three tries with growing patience, then a clear error; nothing of this process stays locked."""
    with pytest.raises(oncemq.BrokerUnreachable) as caught:
        oncemq.connect(NOWHERE, id="me", state=tmp_path / "state")
    assert str(caught.value).startswith(f"no answer from a broker at {NOWHERE} after 3 tries (")
    assert "is 'oncemq serve' running there?" in str(caught.value)
    oncemq.connect(NOWHERE, id="me", state=tmp_path / "state", offline=True).close()


@pytest.mark.parametrize("address", ["", "localhost", "tcp://", "tcp://127.0.0.1", "http://x:1", "tcp://127.0.0.1:71092"])
def test_what_is_no_address_is_told(tmp_path: Path, address: str) -> None:
    """With an example of one."""
    for _ in range(2):
        with pytest.raises(oncemq.UsageError, match=r"tcp://127\.0\.0\.1:5556"):
            oncemq.connect(address, id="me", state=tmp_path / "state")


@pytest.mark.parametrize("options", [{"address": "tcp://127.0.0.1:71092"}, {"live_address": "tcp://127.0.0.1:71092"}])
def test_a_broker_does_not_listen_at_a_port_that_is_none(tmp_path: Path, options: dict[str, str]) -> None:
    """ZeroMQ would listen at 5556."""
    with pytest.raises(oncemq.UsageError, match="a port is at most 65535"):
        oncemq.Broker(tmp_path / "data", **options)  # type: ignore[arg-type]
    oncemq.Broker(tmp_path / "data").stop()


def test_behind_the_last_port_a_broker_publishes_at_any() -> None:
    assert beside("tcp://127.0.0.1:65535") == "tcp://127.0.0.1:*"


@pytest.mark.parametrize("choice", ["", "ignore", None])
def test_an_unknown_way_with_doubt_is_refused(choice: str) -> None:
    """Before anything is opened."""
    with pytest.raises(oncemq.UsageError, match="raise, repeat, skip"):
        oncemq.connect(NOWHERE, in_doubt=choice, offline=True)


@pytest.mark.parametrize("name", ["", "..", "a b", "$ephemeral.x", "x" * 256, 5])
def test_a_client_id_is_a_name(tmp_path: Path, name: str) -> None:
    """It is part of the default directory's path too."""
    with pytest.raises(oncemq.InvalidName):
        oncemq.connect(NOWHERE, id=name, state=tmp_path / "state", offline=True)
    assert not (tmp_path / "state").exists()


def test_the_default_directory_is_per_broker_and_per_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody meets another broker's state by accident."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    places = {
        state_directory(address, client) for address in (NOWHERE, "tcp://127.0.0.1:10", "tcp://[::1]:9") for client in ("a", "b")
    }
    assert len(places) == 6
    assert all(tmp_path in place.parents for place in places)


# --- offline --------------------------------------------------------------------------------------------


def test_a_client_works_offline_and_everything_is_sent_when_the_broker_comes(tmp_path: Path) -> None:
    """D4.1, D4.2: puts are kept, across a restart of the client too, and stored once in their order."""
    with oncemq.Broker(tmp_path / "broker") as broker:
        address = broker.address
        with oncemq.connect(address, id="reader", state=tmp_path / "reader") as reader:
            reader.subscribe("t")
    writer = oncemq.connect(address, id="writer", state=tmp_path / "writer", offline=True)
    for value in (b"1", b"2"):
        writer.put("t", value, wait=False)
    with pytest.raises(oncemq.PutPending, match="2 message\\(s\\) are kept in the outbox") as caught:
        writer.flush(timeout=0)
    assert caught.value.pending == writer.pending == 2
    writer._abandon()
    writer = oncemq.connect(address, id="writer", state=tmp_path / "writer", offline=True)
    assert writer.pending == 2
    writer.put("t", b"3", wait=False)
    with oncemq.Broker(tmp_path / "broker", address):
        assert writer.put("t", b"4").offset == 3
        assert writer.flush() == 4
        with oncemq.connect(address, id="reader", state=tmp_path / "reader") as reader:
            assert [get_value(reader, "t") for _ in range(5)] == [b"1", b"2", b"3", b"4", None]
        writer.close()


def test_blocks_kept_by_a_process_that_died_before_it_met_its_broker_are_sent(tmp_path: Path) -> None:
    """D4.2: nothing of them was ever sent, and the directory can prove it: they are no puts of which nobody knows."""
    with oncemq.Broker(tmp_path / "broker") as broker:
        with oncemq.connect(broker.address, id="writer", state=tmp_path / "writer") as writer:
            writer.subscribe("t")
        for life in (1, 2):
            writer = oncemq.connect(broker.address, id="writer", state=tmp_path / "writer", offline=True)
            for number in range(1_000):
                writer.put("t", b"%d" % (1_000 * life + number), wait=False)
            writer._abandon()
        with oncemq.connect(broker.address, id="writer", state=tmp_path / "writer") as writer:
            assert (writer.pending, writer.leftovers.unknown) == (2_000, 0)
            assert writer.flush() == 2_000
            got = [message.value for _ in range(2) for message in writer.get_many("t", timeout=5)]
            assert got == [b"%d" % number for number in range(1_000, 3_000)]


def test_a_put_without_waiting_that_is_refused_by_the_disk_was_not_taken(
    connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is told so puts it again: it must not be in the next block as well."""

    def refuse(_: object) -> None:
        raise oncemq.DiskFull("the outbox")

    writer = connect("writer")
    writer.subscribe(topic)
    for number in range(999):
        writer.put(topic, b"%d" % number, wait=False)
    with monkeypatch.context() as patch, pytest.raises(oncemq.DiskFull):
        patch.setattr(writer._session.state, "keep", refuse)
        writer.put(topic, b"999", wait=False)
    writer.put(topic, b"999", wait=False)
    assert writer.flush() == 1_000
    assert [message.value for message in writer.get_many(topic, timeout=5)] == [b"%d" % number for number in range(1_000)]


@pytest.mark.parametrize("takeover", [False, True])
def test_however_often_a_client_began_in_vain_it_meets_its_broker_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takeover: bool
) -> None:
    """What was tried is remembered up to a limit; at the limit the newest of it is welcomed in place of all others."""
    monkeypatch.setattr("oncemq.core.identity.KNOWN_SESSIONS_MAX", 4)
    with oncemq.Broker(tmp_path / "broker") as broker:
        with oncemq.connect(broker.address, id="writer", state=tmp_path / "writer") as writer:
            writer.subscribe("t")
            writer.put("t", b"0")
        for life in (1, 2, 3):
            writer = oncemq.connect(broker.address, id="writer", state=tmp_path / "writer", offline=True)
            _keep_a_block(writer, life)
            writer._abandon()
        writer = oncemq.connect(broker.address, id="writer", state=tmp_path / "writer", offline=True)
        with pytest.raises(oncemq.UsageError, match="was started 3 times without reaching a broker"):
            _keep_a_block(writer, 4)
        writer._abandon()
        with oncemq.connect(broker.address, id="writer", state=tmp_path / "writer", takeover=takeover) as writer:
            assert (writer.pending, writer.leftovers.unknown) == (3_000, 0)
            assert writer.flush() == 3_000
            got = [message.value for _ in range(4) for message in writer.get_many("t", timeout=5)]
            assert got == [b"0", *[b"%d" % life for life in (1, 2, 3) for _ in range(1_000)]]
        with oncemq.connect(broker.address, id="writer", state=tmp_path / "writer") as writer:
            assert get_value(writer, "t") is None


def test_at_the_limit_a_lost_directory_is_told_and_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncemq.core.identity.KNOWN_SESSIONS_MAX", 3)
    with oncemq.Broker(tmp_path / "broker") as broker:
        with oncemq.connect(broker.address, id="one", state=tmp_path / "old") as client:
            client.subscribe("t")
        shutil.copytree(tmp_path / "old", tmp_path / "copy")
        with oncemq.connect(broker.address, id="one", state=tmp_path / "old") as client:
            client.put("t", b"0")
        for _ in range(3):
            with pytest.raises(oncemq.StateLost):
                oncemq.connect(broker.address, id="one", state=tmp_path / "copy")
        with oncemq.connect(broker.address, id="one", state=tmp_path / "copy", takeover=True) as client:
            with pytest.raises(oncemq.InDoubt):
                client.get("t", timeout=5)
            client.settle("t", "repeat")
            assert get_value(client, "t") == b"0"


def _keep_a_block(writer: oncemq.Client, life: int) -> None:
    for _ in range(1_000):
        writer.put("t", b"%d" % life, wait=False)


@pytest.mark.usefixtures("impatient")
def test_putting_without_waiting_does_not_wait_for_a_broker_that_went_away(tmp_path: Path) -> None:
    """D4.1: once it is known to be away, blocks only pile up in the outbox; when it is back they leave."""
    broker = oncemq.Broker(tmp_path / "broker")
    writer = oncemq.connect(broker.address, id="writer", state=tmp_path / "writer")
    writer.subscribe("t")
    broker.stop()
    for number in range(80_000):  # Eighty blocks, more than may be in flight: the first beyond waits for three tries.
        writer.put("t", b"%d" % number, wait=False)
    assert writer.pending == 80_000
    with oncemq.Broker(tmp_path / "broker", broker.address):
        assert writer.flush() == 80_000
        got: list[bytes] = []
        while messages := writer.get_many("t", 10_000, timeout=0.5):
            got += [message.value for message in messages]
        assert got == [b"%d" % number for number in range(80_000)]
        writer.close()


def test_an_ephemeral_client_says_where_its_pending_puts_are() -> None:
    """In memory: they die with the process, and the error says so."""
    client = oncemq.connect(NOWHERE, offline=True)
    client.put("t", b"x", wait=False)
    with pytest.raises(oncemq.PutPending, match="in this process's memory"):
        client.flush(timeout=0)
    client._abandon()


# --- the state directory --------------------------------------------------------------------------------


def test_a_state_directory_belongs_to_one_process_at_a_time(connect: Connect, broker: oncemq.Broker, tmp_path: Path) -> None:
    """The second one is told who has it; when that one is gone, so is the lock, however it went."""
    client = connect()
    with pytest.raises(oncemq.DirectoryLocked, match=f"in use by process {os.getpid()}"):
        connect()
    client.close()
    script = (
        "import sys, oncemq\n"
        "client = oncemq.connect(sys.argv[1], id=sys.argv[2], state=sys.argv[3])\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(oncemq.__file__).resolve().parents[1])}
    command = [sys.executable, "-c", script, broker.address, client.id, str(tmp_path / "one")]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        with pytest.raises(oncemq.DirectoryLocked, match=f"in use by process {other.pid}: stop it first"):
            connect()
        other.kill()
    connect().close()


def test_a_broker_directory_belongs_to_one_broker_at_a_time(tmp_path: Path) -> None:
    """The same lock, the same words."""
    with (
        oncemq.Broker(tmp_path / "broker"),
        pytest.raises(oncemq.DirectoryLocked, match=f"in use by process {os.getpid()}"),
    ):
        oncemq.Broker(tmp_path / "broker")


def test_nobody_else_can_read_what_is_kept(tmp_path: Path, topic: str) -> None:
    """Files 0600, directories 0700, whatever the umask."""
    before = os.umask(0)
    try:
        with oncemq.Broker(tmp_path / "broker") as broker:
            client = oncemq.connect(broker.address, id="me", state=tmp_path / "state")
            client.subscribe(topic)
            client.put(topic, b"secret")
            client.get(topic, timeout=5)
            client.close()
    finally:
        os.umask(before)
    for directory in (tmp_path / "broker", tmp_path / "state"):
        assert directory.stat().st_mode & 0o777 == 0o700
        modes = {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}
        assert len(modes) >= 3
        assert set(modes.values()) == {0o600}, modes


def test_another_clients_directory_is_refused(connect: Connect, broker: oncemq.Broker, tmp_path: Path) -> None:
    """One directory, one client id."""
    connect("one").close()
    with pytest.raises(oncemq.DirectoryUnusable, match="belongs to client"):
        oncemq.connect(broker.address, id="somebody-else", state=tmp_path / "one")


def test_a_lost_directory_is_told_and_can_be_taken_over(
    connect: Connect, broker: oncemq.Broker, tmp_path: Path, topic: str
) -> None:
    """R3: same id, no state: refused; with takeover, what was on the way is in doubt."""
    client = connect()
    client.subscribe(topic)
    client.put_many(topic, [b"a", b"b"])
    client.close()
    with pytest.raises(oncemq.StateLost, match="takeover=True"):
        oncemq.connect(broker.address, id=client.id, state=tmp_path / "fresh")
    with oncemq.connect(broker.address, id=client.id, state=tmp_path / "fresh", takeover=True) as heir:
        with pytest.raises(oncemq.InDoubt, match="messages 0 to 1"):
            heir.get(topic, timeout=0.2)
        heir.settle(topic, "repeat")
        assert [get_value(heir, topic) for _ in range(3)] == [b"a", b"b", None]
    with pytest.raises(oncemq.StateLost):
        connect()


def test_a_newer_session_fences_the_older(connect: Connect, broker: oncemq.Broker, tmp_path: Path, topic: str) -> None:
    """R3: the old process is out for good, with one error on every call."""
    old = connect()
    old.subscribe(topic)
    with oncemq.connect(broker.address, id=old.id, state=tmp_path / "fresh", takeover=True):
        for _ in range(2):
            with pytest.raises(oncemq.Fenced):
                old.put(topic, b"x")
            with pytest.raises(oncemq.Fenced):
                old.get(topic, timeout=0)
    old._abandon()


@pytest.mark.parametrize("content", ["", "{", '{"client": 5}', '{"client": "one", "format": 99}'])
def test_a_state_directory_that_cannot_be_read_is_refused_untouched(tmp_path: Path, content: str) -> None:
    """Cut, garbled, or from a newer version."""
    place = tmp_path / "state"
    place.mkdir()
    (place / "client.json").write_text(content)
    with pytest.raises((oncemq.DirectoryUnusable, oncemq.DirectoryTooNew)):
        oncemq.connect(NOWHERE, id="one", state=place, offline=True)
    assert (place / "client.json").read_text() == content


def test_a_file_in_the_place_of_a_directory_is_told(tmp_path: Path) -> None:
    """For clients and brokers alike."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(oncemq.DirectoryUnusable, match="it is a file"):
        oncemq.connect(NOWHERE, id="one", state=tmp_path / "file", offline=True)
    with pytest.raises(oncemq.DirectoryUnusable, match="it is a file"):
        oncemq.Broker(tmp_path / "file")


def test_a_client_goes_on_after_the_broker_was_restarted(tmp_path: Path) -> None:
    """Sessions survive: no reconnect, no hello, the same objects go on."""
    broker = oncemq.Broker(tmp_path / "broker")
    with oncemq.connect(broker.address, id="one", state=tmp_path / "one") as client:
        client.subscribe("t")
        client.put_many("t", [b"a", b"b"])
        assert get_value(client, "t") == b"a"
        broker.stop()
        with oncemq.Broker(tmp_path / "broker", broker.address):
            assert client.put("t", b"c").offset == 2
            assert [get_value(client, "t") for _ in range(3)] == [b"b", b"c", None]
            client.close()


def test_a_client_that_is_not_closed_is_warned_about(broker: oncemq.Broker, tmp_path: Path) -> None:
    """As files and sockets are."""
    client = oncemq.connect(broker.address, id="unclosed", state=tmp_path / "unclosed")
    with pytest.warns(ResourceWarning, match="unclosed <oncemq.Client 'unclosed' at"):
        client.__del__()
    client.close()


def test_a_put_that_was_refused_leaves_no_empty_block_behind(connect: Connect, topic: str) -> None:
    """An open block whose only message was refused is not cut: the next flush has nothing to send."""
    client = connect()
    with pytest.raises(oncemq.UsageError):
        client.put(topic, b"v", key="text", wait=False)  # type: ignore[call-overload]

    assert client.flush() == 0
    assert client.close() == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_clients_that_nobody_closes_do_not_hang_the_process(broker: oncemq.Broker) -> None:
    """They are warned about when they are collected; collecting them must not wait for their sockets."""
    code = (
        "import gc, sys, warnings, oncemq\n"
        "warnings.simplefilter('ignore')\n"
        "for _ in range(20):\n"
        "    oncemq.connect(sys.argv[1])\n"
        "    gc.collect()\n"
    )
    subprocess.run([sys.executable, "-c", code, broker.address], timeout=60, check=True)


def test_leaving_the_block_releases_the_directory_whatever_fails_there(
    connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise oncemq.DiskFull("a slot")

    client = connect("tidy")
    client.subscribe(topic)
    monkeypatch.setattr(client._gets, "finish_all", full)
    with pytest.raises(oncemq.DiskFull), client:
        pass
    assert connect("tidy").subscriptions() == [topic]
