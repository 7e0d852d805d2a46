# SPDX-License-Identifier: Apache-2.0
"""Topics, subscriptions, clients, statistics: lists and commands, as tables and as JSON.

May not: depend on how a table looks beyond the words in it.
Next: test_directories.py.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import oncemq
from oncemq.cli.completion import complete_topic
from oncemq.cli.questions import is_agreed
from tests.cli.harness import Shell


def test_an_empty_broker_lists_nothing_and_says_so(shell: Shell) -> None:
    for command, name in ((("topics",), "topics"), (("subscription", "list"), "subscriptions"), (("client", "list"), "clients")):
        ended, as_json = shell(*command), shell(*command, "--json")
        assert (ended.code, ended.out) == (0, b"")
        assert ended.err.startswith("no ")
        assert as_json.json == {name: []}


def test_topics_are_listed_by_name(shell: Shell) -> None:
    shell("topic", "create", "orders", "--retain", "7d", "--limit", "10GiB")
    shell("subscribe", "audit", "--id", "billing")
    shell("put", "audit", "one")

    audit, orders = shell("topics", "--json").json["topics"]

    assert (audit["topic"], audit["messages"], audit["end"], audit["subscriptions"]) == ("audit", 1, 1, 1)
    assert (orders["topic"], orders["retain"], orders["limit"]) == ("orders", "7d", "10GiB")
    assert [line.split()[0] for line in shell("topics").lines if line.strip()][2:] == ["audit", "orders"]


def test_a_topic_is_created_once_and_deleted_once(shell: Shell) -> None:
    created, again = shell("topic", "create", "orders", "--json"), shell("topic", "create", "orders", "--json")
    deleted, gone = shell("topic", "delete", "orders", "--json"), shell("topic", "delete", "orders", "--json")

    assert (created.code, created.json["topic"]) == (0, "orders")
    assert (again.code, again.error["error"]) == (4, "topic_exists")
    assert (deleted.code, deleted.json) == (0, {"topic": "orders", "deleted": True})
    assert (gone.code, gone.error["error"]) == (4, "no_such_topic")


def test_show_says_who_subscribes(shell: Shell) -> None:
    shell("subscribe", "orders", "--id", "billing")
    shell("put", "orders", "one", "two")

    shown, as_json = shell("topic", "show", "orders"), shell("topic", "show", "orders", "--json").json

    assert "billing" in shown.text
    assert [(row["client"], row["waiting"]) for row in as_json["subscriptions"]] == [("billing", 2)]
    assert (as_json["topic"], as_json["end"]) == ("orders", 2)
    assert shell("topic", "show", "nothing").code == 4


def test_a_subscription_is_listed_and_deleted_by_its_id(shell: Shell) -> None:
    for topic in ("orders", "audit"):
        shell("subscribe", topic, "--id", "billing")
    shell("put", "orders", "one", "two")
    shell("get", "orders", "--id", "billing")

    of_orders = shell("subscription", "list", "--topic", "orders", "--json").json["subscriptions"]
    deleted = shell("subscription", "delete", of_orders[0]["id"])

    assert [(row["topic"], row["client"], row["waiting"]) for row in of_orders] == [("orders", "billing", 1)]
    assert deleted.code == 0
    assert [row["topic"] for row in shell("subscription", "list", "--json").json["subscriptions"]] == ["audit"]
    assert shell("subscription", "delete", of_orders[0]["id"], "--json").error["error"] == "no_such_subscription"


def test_a_forgotten_client_is_gone_with_its_subscriptions(shell: Shell) -> None:
    shell("subscribe", "orders", "--id", "billing")

    before = shell("client", "list", "--json").json["clients"]
    forgotten, again = shell("client", "forget", "billing", "--json"), shell("client", "forget", "billing", "--json")

    assert [(row["client"], row["subscriptions"], row["ephemeral"]) for row in before] == [("billing", 1, False)]
    assert (forgotten.code, forgotten.json) == (0, {"client": "billing", "forgotten": True})
    assert (again.code, again.error["error"]) == (4, "no_such_client")
    assert shell("subscription", "list", "--json").json == {"subscriptions": []}


def test_looking_leaves_no_trace(shell: Shell) -> None:
    for command in (("topics",), ("subscription", "list"), ("client", "list"), ("stats",)):
        shell(*command)

    assert shell("client", "list", "--json").json == {"clients": []}


def test_statistics_count_what_was_done(shell: Shell) -> None:
    shell("subscribe", "orders", "--id", "billing")
    shell("put", "orders", "one", "two")

    found = shell("stats", "--json").json

    assert (found["topics"], found["subscriptions"], found["clients"], found["count_puts"]) == (1, 1, 1, 2)
    assert len(found["log_id"]) == len(found["start_id"]) == 32
    assert "count puts" in shell("stats").text


def test_topic_names_are_completed_from_the_broker(shell: Shell, broker: oncemq.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    for topic in ("orders", "orders.eu", "audit"):
        shell("topic", "create", topic)
    monkeypatch.setenv("ONCEMQ_ADDRESS", broker.address)

    assert sorted(complete_topic(SimpleNamespace(params={}), "ord")) == ["orders", "orders.eu"]  # type: ignore[arg-type]
    assert complete_topic(SimpleNamespace(params={}), "zebra") == []  # type: ignore[arg-type]


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense", "tcp://"])
def test_completion_is_silent_without_a_broker(alone: Shell, address: str) -> None:
    assert complete_topic(SimpleNamespace(params={"address": address}), "o") == []  # type: ignore[arg-type]
    assert alone("--version", local=True).err == ""


def test_a_script_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)

    assert is_agreed("Delete everything?", yes=False)
