# SPDX-License-Identifier: Apache-2.0
"""One hand-made packet of every type, and ways to draw any packet at all.

May not: test anything.
The idea: strategies are read off the packets' own types, so that a field somebody adds is drawn too.
Next: test_packets.py.
"""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec import inspect

from oncemq.core import packets as p

A, B, C, LOG = b"a" * 16, b"b" * 16, b"c" * 16, b"L" * 16
INFO = p.SubscriptionInfo(5, "orders", 3, "local", 100, 120, 90, 130)
TOPIC = p.TopicInfo("orders", 3, True, "age:604800", "size:1000000", 90, 130, 2, 4096)

SAMPLES: dict[str, p.Packet] = {
    "Hello": p.Hello("billing", A, LOG, (B, C), (b"d" * 16,), (C,), False, True),
    "Hello of a new client": p.Hello("billing", A),
    "Goodbye": p.Goodbye(A),
    "Put": p.Put(A, B, 41, 1000, ("orders", "invoices.eu-west_1"), True),
    "Transact": p.Transact(
        A, 42, (p.TransactAck(5, 3, 119, 121), p.TransactAck(6, 4, 0, 1)), (p.TransactPut(("orders", "invoices"), 10, 800, True),)
    ),
    "Transact with a bookmark": p.Transact(A, 42, (p.TransactAck(5, 3, 119, 121, B, 77),)),
    "Transact in short": p.Transact(A, 42, (p.TransactAck(5, 3, 119, 121),)),
    "Stage": p.Stage("4c6ff1a2-query", 12, A, 3, 10_000),
    "CommitStaged": p.CommitStaged("4c6ff1a2-query", 12, 2, True),
    "CommitStaged in short": p.CommitStaged("4c6ff1a2-query", 0, 0),
    "MeshStatus": p.MeshStatus(),
    "MeshStatusDone": p.MeshStatusDone(
        "tcp://10.0.0.1:7000",
        LOG,
        C,
        "member",
        (p.MeshNeighbour("tcp://10.0.0.2:7000", 120, "in step"),),
        ("tcp://10.0.0.3:7000",),
        7,
        (p.MeshOrigin(LOG, C, 1, 40, 42),),
        3,
        2,
        {"asks": 5},
    ),
    "StageDone": p.StageDone(A, 3, False),
    "CommitStagedDone": p.CommitStagedDone("4c6ff1a2-query", 12, True, (p.CommittedRange(3, 120, 20_000),)),
    "Subscribe": p.Subscribe(A, 2, "orders", "time", 1_700_000_000_000_000, "broker"),
    "Subscribe in short": p.Subscribe(A, 1, "orders"),
    "Unsubscribe": p.Unsubscribe(A, 3, "orders", 5),
    "Get": p.Get(A, (p.Want(5, 3, 130, 120, C, 77), p.Want(6, 4, 0)), 1_048_576, 30_000, "local"),
    "Read": p.Read("orders", 3, 90, 130, 65_536),
    "Ack": p.Ack(A, 5, 3, 121, "broker", True),
    "Ack with a bookmark": p.Ack(A, 5, 3, 121, "broker", True, B, 77),
    "CreateTopic": p.CreateTopic(A, 4, "orders", "forever", "size:1000000"),
    "DeleteTopic": p.DeleteTopic(A, 5, "orders", 3),
    "DeleteSubscription": p.DeleteSubscription(A, 6, 5),
    "ForgetClient": p.ForgetClient(A, 7, "billing"),
    "ListTopics": p.ListTopics("orders"),
    "ListSubscriptions": p.ListSubscriptions("orders"),
    "ListClients": p.ListClients(),
    "Stats": p.Stats(),
    "Shutdown": p.Shutdown(C),
    "Heartbeat": p.Heartbeat(),
    "Welcome": p.Welcome("billing", A, LOG, C, (p.StreamInfo(B, 40), p.StreamInfo(A, 0)), p.StreamInfo(B, 40), True, (INFO,)),
    "GoodbyeDone": p.GoodbyeDone(A),
    "PutDone": p.PutDone(B, 41, 2000, True, "", (p.PutOutcome(3, True, 120), p.PutOutcome(0, False, None))),
    "PutDone, refused": p.PutDone(B, 41, 1, False, "too_large", ()),
    "TransactDone": p.TransactDone(42, 21, True, "", (p.PutOutcome(3, True, 120), p.PutOutcome(0, False, None))),
    "TransactDone, refused": p.TransactDone(42, 1, False, "cursor_moved", ()),
    "SubscribeDone": p.SubscribeDone(2, INFO),
    "CommandDone": p.CommandDone(3),
    "Blocks": p.Blocks((p.Part(3, 120, 90, 130), p.Part(4, 0, 0, 9, 2, 5)), 77, C),
    "AckDone": p.AckDone(5, 121),
    "TopicDone": p.TopicDone(4, TOPIC),
    "Topics": p.Topics((TOPIC,)),
    "Subscriptions": p.Subscriptions((p.SubscriptionRow("billing", INFO),)),
    "Clients": p.Clients((p.ClientRow("billing", A, False, 2, 40, 1),)),
    "StatsDone": p.StatsDone(LOG, C, {"topics": 1, "append_number": 77}),
    "ShutdownDone": p.ShutdownDone(C),
    "HeartbeatDone": p.HeartbeatDone(C, "tcp://127.0.0.1:5557"),
    "Live": p.Live(C, 3, 130),
    "Refused": p.Refused("gap_in_stream", "an earlier put of this stream is missing", 41),
}


def drawn(kind: type) -> st.SearchStrategy:
    """Any packet of a type, within the bounds its fields declare."""
    fields = {field.encode_name: _values(field.type) for field in inspect.type_info(kind).fields}  # type: ignore[union-attr]
    return st.builds(kind, **fields)


def _values(kind: inspect.Type) -> st.SearchStrategy[object]:  # one line per kind of field
    match kind:
        case inspect.IntType():
            return st.integers(kind.ge if kind.ge is not None else -(2**63), kind.le if kind.le is not None else 2**63 - 1)
        case inspect.BytesType():
            return st.binary(min_size=kind.min_length or 0, max_size=kind.max_length)
        case inspect.StrType():
            return st.text(st.characters(exclude_categories=["Cs"]), max_size=min(kind.max_length or 20, 20))
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.EnumType():
            return st.sampled_from(list(kind.cls))
        case inspect.UnionType():
            return st.one_of([_values(each) for each in kind.types])
        case inspect.DictType():
            return st.dictionaries(_values(kind.key_type), _values(kind.value_type), max_size=3)
        case inspect.VarTupleType():
            return st.lists(_values(kind.item_type), min_size=kind.min_length or 0, max_size=3).map(tuple)
        case inspect.StructType():
            return drawn(kind.cls)
        case _:
            raise AssertionError(f"no way to draw {kind}")
