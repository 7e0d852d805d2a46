# SPDX-License-Identifier: Apache-2.0
"""A broker's machine with nothing around it: say a packet, see its records applied and what it answers."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from oncemq.core.broker import BrokerMachine
from oncemq.core.effects import Deliver, Effects, Send, Sender, Speech
from oncemq.core.packets import Hello, Packet, Put, Refused, Subscribe, SubscribeDone, SubscriptionInfo
from oncemq.core.state import BrokerState
from oncemq.model.block import cut_block
from oncemq.ports import Instant

TO = Sender(b"a", 1)
SESSION, OTHER = b"s" * 16, b"o" * 16
LOG, START = b"l" * 16, b"i" * 16
WALL_US = 1_700_000_000_000_000


@dataclass(frozen=True)
class Held:
    """What one segment holds of a topic."""

    end_offset: int
    size_bytes: int
    last_append_time_us: int = 0


@dataclass
class FakeStore:
    """What a journal would say of topics, whatever their ids."""

    held: list[Held] = field(default_factory=list)
    at_time: int | None = None
    asked_us: int | None = None

    def offset_at_time(self, _topic_id: int, time_us: int) -> int | None:
        self.asked_us = time_us
        return self.at_time

    def holdings(self, _topic_id: int) -> list[Held]:
        return self.held


def at(ticks_ms: int, shift_us: int = 0) -> Instant:
    return Instant(ticks_ms, WALL_US + ticks_ms * 1000 + shift_us)


class Talk:
    """A conversation with a machine; `clock_ms` moves only when a test says so."""

    def __init__(self, *, retain: str = "", limit: str = "") -> None:
        self.store = FakeStore()
        self.clock_ms = 1_000
        self.machine = BrokerMachine(BrokerState(), self.store, LOG, retain=retain, limit=limit)  # type: ignore[arg-type]
        self.take(self.machine.start(at(0), START, "test"))
        self.machine.room_bytes = 1_000_000
        self.say(Hello("client", SESSION))
        self.commands = 0

    @property
    def state(self) -> BrokerState:
        return self.machine.state

    def take(self, effects: Effects) -> tuple[Speech, ...]:
        for record in effects.records:
            self.machine.apply(record)
        return effects.speech

    def speech(self, packet: Packet, block: bytes = b"") -> tuple[Speech, ...]:
        return self.take(self.machine.decide(at(self.clock_ms), TO, packet, block))

    def say(self, packet: Packet, block: bytes = b"") -> Packet:
        (spoken,) = self.speech(packet, block)
        assert isinstance(spoken, Send)
        return spoken.packet

    def code(self, packet: Packet, block: bytes = b"") -> str:
        answer = self.say(packet, block)
        assert isinstance(answer, Refused), answer
        return answer.code

    def command(self) -> int:
        self.commands += 1
        return self.commands

    def subscribe(self, topic: str = "t", start: str = "new", at_: int = 0) -> SubscriptionInfo:
        done = self.say(Subscribe(SESSION, self.command(), topic, start, at_))
        assert isinstance(done, SubscribeDone), done
        return done.subscription

    def put(self, first_number: int, count: int = 1, topics: tuple[str, ...] = ("t",), *, strict: bool = False) -> Packet:
        return self.say(Put(SESSION, SESSION, first_number, count, topics, strict), block_of(count))

    def settle(self, *, has_records: bool = False) -> tuple[Speech, ...]:
        return self.take(self.machine.settle(at(self.clock_ms), has_records=has_records))

    def delivered(self, packet: Packet) -> Deliver:
        (spoken,) = self.speech(packet)
        assert isinstance(spoken, Deliver), spoken
        return spoken


def block_of(count: int, value: bytes = b"v") -> bytes:
    return bytes(cut_block([value] * count, array("q", [1] * count)))
