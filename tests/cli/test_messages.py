# SPDX-License-Identifier: Apache-2.0
"""put, get, subscribe and unsubscribe, typed as people type them, against a real broker.

May not: look into the broker: only what the commands say counts.
Next: test_told.py for what goes wrong.
"""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import oncemq
from oncemq.limits import VALUE_BYTES_MAX
from tests.cli.harness import Shell


def type_in(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Have this on stdin."""
    stdin = SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(content)), isatty=lambda: False)
    monkeypatch.setattr("sys.stdin", stdin)


# --- put ------------------------------------------------------------------------------------------


def test_put_says_the_offset_of_every_message(shell: Shell) -> None:
    shell("subscribe", "orders", "--id", "billing")

    ended = shell("put", "orders", "one", "two")

    assert (ended.code, ended.lines) == (0, ["orders: stored at offset 0", "orders: stored at offset 1"])


def test_a_put_nobody_wants_is_not_stored_and_strict_makes_that_an_error(shell: Shell) -> None:
    shell("topic", "create", "orders")

    loose, strict = shell("put", "orders", "one"), shell("put", "orders", "one", "--strict", "--json")

    assert (loose.code, loose.text) == (0, "orders: not stored: no subscribers\n")
    assert (strict.code, strict.error["error"]) == (4, "no_subscribers")


def test_a_receipt_as_json(shell: Shell) -> None:
    shell("subscribe", "orders", "--id", "billing")

    assert shell("put", "orders", "one", "--json").json == {
        "topic": "orders",
        "stored": True,
        "offset": 0,
        "duplicate": False,
        "number": 1,
    }


def test_one_put_into_several_topics(shell: Shell) -> None:
    for topic in ("orders", "audit"):
        shell("subscribe", topic, "--id", "billing")

    ended = shell("put", "orders", "both", "--topic", "audit", "--json")

    assert [(row["topic"], row["offset"]) for row in ended.json_lines] == [("orders", 0), ("audit", 0)]
    assert shell("get", "--any", "--id", "billing", "--all").text == "both\nboth\n"


def test_a_file_is_one_message_byte_by_byte(shell: Shell, tmp_path: Path) -> None:
    content = bytes(range(256)) + b"\n\n"
    (tmp_path / "order").write_bytes(content)
    shell("subscribe", "orders", "--id", "billing")

    assert shell("put", "orders", "--file", tmp_path / "order").code == 0
    assert shell("get", "orders", "--id", "billing").out == content + b"\n"


def test_every_line_of_stdin_is_a_message(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell("subscribe", "orders", "--id", "billing")
    type_in(monkeypatch, b"one\n\nthree\nlast without an end")

    ended = shell("put", "orders", "-")

    assert (ended.code, ended.text) == (0, "orders: 4 stored at offsets 0 to 3\n")
    assert shell("get", "orders", "--id", "billing", "--all").text == "one\n\nthree\nlast without an end\n"


def test_stdin_goes_on_at_a_line(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell("subscribe", "orders", "--id", "billing")
    type_in(monkeypatch, b"".join(b"%d\n" % number for number in range(1, 25_001)))

    ended = shell("put", "orders", "--stdin", "--from-line", "24999", "--json")

    assert ended.json == {
        "topic": "orders",
        "stored": 2,
        "not_stored": 0,
        "first_offset": 0,
        "last_offset": 1,
        "last_line": 25_000,
    }
    assert shell("get", "orders", "--id", "billing", "--all").text == "24999\n25000\n"


def test_lines_with_key_and_headers(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell("subscribe", "orders", "--id", "billing")
    type_in(monkeypatch, b"one\ntwo\n")

    shell("put", "orders", "-", "--key", "k", "--header", "source=web")
    got = shell("get", "orders", "--id", "billing", "--all", "--json").json_lines

    assert [(row["value"], row["key"], row["headers"]) for row in got] == [
        ("one", "k", {"source": "web"}),
        ("two", "k", {"source": "web"}),
    ]


def test_an_interrupted_stdin_names_the_line_to_go_on_with(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell("subscribe", "orders", "--id", "billing")
    type_in(monkeypatch, b"one\ntwo\n" + b"x" * (VALUE_BYTES_MAX + 300_000))

    ended = shell("put", "orders", "-", "--json")

    assert ended.code == 2
    said = [json.loads(line) for line in ended.err.splitlines()]
    assert said[0]["next_line"] == 3
    assert said[-1]["error"] == "message_too_large"
    assert shell("get", "orders", "--id", "billing", "--all").text == "one\ntwo\n"


def test_ctrl_c_names_the_line_to_go_on_with(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            content = super().read1(size)
            if not content:
                raise KeyboardInterrupt
            return content

    shell("subscribe", "orders", "--id", "billing")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=Interrupted(b"one\ntwo\nthr"), isatty=lambda: False))

    ended = shell("put", "orders", "-")

    assert (ended.code, ended.err) == (130, "lines 1 to 2 are stored: go on with --from-line 3\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("put", "orders"),
        ("put", "orders", "one", "--stdin"),
        ("put", "orders", "one", "--file", "x"),
        ("put", "orders", "--file", "x", "--stdin"),
        ("put", "orders", "--file", "there-is-no-such-file"),
        ("put", "orders", "one", "--from-line", "2"),
        ("put", "orders", "--stdin", "--from-line", "0"),
        ("put", "orders", "one", "--header", "no equals sign"),
        ("put", "orders", "one", "--header", "=x"),
        ("put", "orders", "one", "--topic", "orders"),
        ("put", "orders", "one", "--state", "somewhere"),
        ("put", "orders", "one", "--no-such-option"),
        ("get", "--id", "billing"),
        ("get", "orders", "--any", "--id", "billing"),
        ("get", "orders"),
        ("get", "orders", "--id", "billing", "--count", "0"),
        ("get", "orders", "--id", "billing", "--wait", "-1"),
        ("get", "orders", "--id", "billing", "--all", "--count", "2"),
        ("get", "orders", "--id", "billing", "--in-doubt", "perhaps"),
        ("subscribe", "orders"),
        ("subscribe", "orders", "--id", "billing", "--start", "yesterday"),
        ("subscribe", "orders", "--id", "billing", "--start", "1234567890123456789012"),
        ("subscribe", "orders", "--id", "billing", "--start", "1950-01-01T00:00Z"),
        ("topic", "create", "orders", "--retain", "a while"),
        ("subscription", "delete", "not-a-number"),
        ("no-such-command",),
    ],
)
def test_what_cannot_be_is_told_in_words_and_json_and_changes_nothing(idle: Shell, arguments: tuple[str, ...]) -> None:
    ended, as_json = idle(*arguments), idle(*arguments, "--json")

    assert (ended.code, as_json.code) == (2, 2)
    assert ended.err.startswith("error: ")
    assert "Traceback" not in ended.err
    assert as_json.error.keys() >= {"error", "text"}
    assert (ended.out, as_json.out) == (b"", b"")
    assert idle("topics", "--json").json == {"topics": []}


NOT_NAMES = ["..", "", "x" * 10_000, "a\0b", "a\nb", "$reserved", "ü", "a b", "/etc/passwd", "\udcff"]


@pytest.mark.parametrize("name", NOT_NAMES)
def test_a_name_that_is_none_never_reaches_the_broker(idle: Shell, name: str) -> None:
    for ended in (
        idle("put", name, "value"),
        idle("put", "good", "value", "--topic", name),
        idle("get", name, "--id", "billing"),
        idle("subscribe", name, "--id", "billing"),
        idle("unsubscribe", name, "--id", "billing"),
        idle("topic", "create", name),
        idle("topic", "show", name),
        idle("topic", "delete", name),
    ):
        assert ended.code == 2
        assert "is not valid" in ended.err
    assert idle("client", "list", "--json").json == {"clients": []}


@pytest.mark.parametrize("name", [name for name in NOT_NAMES if name])
def test_an_id_that_is_none_is_told(idle: Shell, name: str) -> None:
    for command in (("get", "orders"), ("subscribe", "orders"), ("put", "orders", "value")):
        ended = idle(*command, "--id", name)
        assert (ended.code, "client id" in ended.err) == (2, True)
    assert idle("client", "forget", name).code == 2


# --- get ------------------------------------------------------------------------------------------


def test_every_message_is_got_once(shell: Shell) -> None:
    shell("subscribe", "orders", "--id", "billing")
    shell("put", "orders", "one", "two", "three")

    first, two, rest = (
        shell("get", "orders", "--id", "billing"),
        shell("get", "orders", "--id", "billing", "--count", "1"),
        shell("get", "orders", "--id", "billing", "--all"),
    )

    assert [each.text for each in (first, two, rest)] == ["one\n", "two\n", "three\n"]
    assert [each.code for each in (first, two, rest)] == [0, 0, 0]


def test_no_messages_is_exit_code_1_and_says_so(shell: Shell) -> None:
    shell("subscribe", "orders", "--id", "billing")

    for more in ((), ("--all",), ("--wait", "0.1"), ("--count", "5")):
        ended = shell("get", "orders", "--id", "billing", *more)
        assert (ended.code, ended.out, ended.err) == (1, b"", "error: no messages\n")
    assert shell("get", "orders", "--id", "billing", "--json").error == {"error": "no_messages", "text": "no messages"}


def test_a_count_that_is_not_reached_is_fine(shell: Shell) -> None:
    shell("subscribe", "orders", "--id", "billing")
    shell("put", "orders", "one")

    ended = shell("get", "orders", "--id", "billing", "--count", "5")

    assert (ended.code, ended.text) == (0, "one\n")


def test_get_any_takes_the_oldest_over_all_subscriptions(shell: Shell) -> None:
    for topic in ("b", "a"):
        shell("subscribe", topic, "--id", "billing")
    for topic, value in (("b", "1"), ("a", "2"), ("b", "3")):
        shell("put", topic, value)

    assert shell("get", "--any", "--id", "billing", "--all").text == "1\n2\n3\n"
    assert shell("get", "--any", "--id", "billing").code == 1


def test_a_topic_that_is_not_there_and_one_that_is_not_subscribed_are_told_apart(shell: Shell) -> None:
    shell("topic", "create", "orders")

    missing = shell("get", "nothing", "--id", "billing", "--json")
    other = shell("get", "orders", "--id", "billing", "--json")
    nowhere = shell("get", "--any", "--id", "billing", "--json")

    assert [(each.code, each.error["error"]) for each in (missing, other, nowhere)] == [
        (4, "no_such_topic"),
        (4, "not_subscribed"),
        (4, "not_subscribed"),
    ]


def test_a_message_as_json_says_everything(shell: Shell, broker: oncemq.Broker, tmp_path: Path) -> None:
    shell("subscribe", "orders", "--id", "billing")
    with oncemq.connect(broker.address, id="shop", state=tmp_path / "shop") as shop:
        shop.put("orders", "größer".encode(), key=b"\xff", headers={"source": "web", "raw": b"\x00\xff"})
        shop.put("orders", b"\xfe\xff")

    text, binary = shell("get", "orders", "--id", "billing", "--all", "--json").json_lines

    times = {text.pop(name)[-6:] for name in ("publish_time", "append_time")}
    assert times == {"+00:00"}
    assert text == {
        "topic": "orders",
        "offset": 0,
        "value": "größer",
        "encoding": "text",
        "key": base64.b64encode(b"\xff").decode(),
        "key_encoding": "base64",
        "headers": {"source": "web", "raw": {"base64": base64.b64encode(b"\x00\xff").decode()}},
        "publisher": "shop",
        "put_number": 1,
    }
    assert (binary["encoding"], base64.b64decode(binary["value"])) == ("base64", b"\xfe\xff")
    assert (binary["key"], binary["key_encoding"], binary["headers"]) == (None, None, {})


def test_bytes_that_are_no_text_are_put_and_got_as_they_were_typed(shell: Shell) -> None:
    shell("subscribe", "orders", "--id", "billing")

    shell("put", "orders", b"\xff\xfe".decode("utf-8", "surrogateescape"), "--header", "raw=\udcff")

    assert shell("get", "orders", "--id", "billing").out == b"\xff\xfe\n"


# --- subscribe ------------------------------------------------------------------------------------


def test_subscribing_twice_is_refused_unless_that_is_fine(shell: Shell) -> None:
    first = shell("subscribe", "orders", "--id", "billing")
    again = shell("subscribe", "orders", "--id", "billing", "--json")
    fine = shell("subscribe", "orders", "--id", "billing", "--exist-ok", "--json")

    assert (first.code, first.text) == (0, "'billing' is subscribed to 'orders' from offset 0\n")
    assert (again.code, again.error["error"]) == (4, "already_subscribed")
    assert (fine.code, fine.json["topic"], fine.json["start"]) == (0, "orders", 0)


def test_a_subscription_starts_where_it_is_told(shell: Shell) -> None:
    shell("topic", "create", "orders", "--retain", "forever")
    shell("put", "orders", "0", "1", "2")
    begin = shell("get", "orders", "--id", "nobody")

    starts = {
        where: shell("subscribe", "orders", "--id", f"from-{number}", "--start", where, "--json").json["start"]
        for number, where in enumerate(("new", "earliest", "1", "2000-01-01T00:00Z", "2000-01-01"))
    }

    assert begin.code == 4
    assert starts == {"new": 3, "earliest": 0, "1": 1, "2000-01-01T00:00Z": 0, "2000-01-01": 0}
    assert shell("get", "orders", "--id", "from-2", "--all").text == "1\n2\n"


def test_an_offset_beyond_the_end_is_told(shell: Shell) -> None:
    ended = shell("subscribe", "orders", "--id", "billing", "--start", "7", "--json")

    assert (ended.code, ended.error["error"]) == (4, "beyond_end")


def test_unsubscribing_says_what_is_wrong(shell: Shell) -> None:
    shell("subscribe", "orders", "--id", "billing")
    shell("topic", "create", "kept")

    missing = shell("unsubscribe", "nothing", "--id", "billing", "--json")
    other = shell("unsubscribe", "kept", "--id", "billing", "--json")
    done = shell("unsubscribe", "orders", "--id", "billing", "--json")

    assert [(each.code, each.error["error"]) for each in (missing, other)] == [(4, "no_such_topic"), (4, "not_subscribed")]
    assert (done.code, done.json) == (0, {"topic": "orders", "client": "billing", "unsubscribed": True})


def test_the_environment_names_address_and_id(shell: Shell, broker: oncemq.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEMQ_ADDRESS", broker.address)
    monkeypatch.setenv("ONCEMQ_ID", "billing")

    assert shell("subscribe", "orders", local=True).code == 0
    assert shell("put", "orders", "one", local=True).code == 0
    assert shell("get", "orders", local=True).text == "one\n"
