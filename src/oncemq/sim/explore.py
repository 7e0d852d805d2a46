# SPDX-License-Identifier: Apache-2.0
"""Small-scope exhaustive search: every order in which packets, losses, copies and crashes can come about, for three messages.

May not: sample. Within its bounds nothing is left out; beyond them it says nothing.
The idea: two publishers, a broker and a subscriber as values (sim/explore_parts.py), packets in queues between them. From each
state every possible next event is tried: the next packet of a line arrives, is lost, or leaves a copy that arrives whenever it
likes; the broker takes another packet into its drain or syncs and speaks; it dies with or without what it had appended; a client
dies, with or without its memory of what was confirmed; an application gets, acknowledges or settles. States seen before are
left. In each the laws of sim/checkers.py hold (those that make sense for one state), and from each, if nothing more goes wrong,
all is delivered in the end.
Orders that differ only in what nobody else can see are tried once: an answer is heard when it is said (or lost, or copied), and
an application, or whoever has waited in vain, goes on before others do. A client that dies before it hears an answer is one that
died before the broker spoke.
Next: sim/explore_parts.py for the machines.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from oncemq.core import packets as p
from oncemq.core.state import BrokerState
from oncemq.sim import explore_parts as parts
from oncemq.sim.explore_parts import STALE, Broken, BrokerPart, Item, PublisherPart, SubscriberPart
from oncemq.sim.explore_space import Bounds, Explored, Numbers, cannot_reach

Queue = tuple[int, ...]
SUBSCRIBER = 2
_ANSWERS = (p.Welcome, p.PutDone, p.Blocks, p.Refused)
_SPEAKS = ("the broker syncs and speaks", -1)
_DEATHS = (("the broker dies without its drain", -1), ("the broker dies with its drain written", -1))
_ENDS = tuple(f"{parts.name_of(client)} dies" for client in range(3))
_RETRIES = tuple(f"{parts.name_of(client)} tries again" for client in range(3))


class State(NamedTuple):
    """Everything there is, as numbers of parts and items, and what the applications were told."""

    broker: int
    clients: tuple[int, int, int]
    up: tuple[Queue, Queue, Queue]
    late: Queue
    """Copies, and what outlived its sender: may arrive whenever it likes, in either direction."""
    told: tuple[tuple[str, int], ...]
    expected: int
    """The offset the application is handed next."""
    finished: int
    crashes: int
    drops: int
    copies: int


Label = tuple[str, int]
"""What happened, and to which item."""
NO_ITEM = -1
Move = tuple[Label, bool, State]
"""What happened, whether it is a fault, and what it leads to."""


class Explorer:
    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._number = Numbers()

    # --- the search ----------------------------------------------------------------------------------

    def run(self) -> Explored:
        """Breadth first; a state is known by its hash, so that millions of them fit into memory."""
        first = self._begin()
        numbers, waiting = {hash(first): 0}, deque([first])
        origins, labels = array("q", [0]), [_SPEAKS]
        sound, goals, source = array("q"), [], -1
        transitions = 0
        while waiting:
            state = waiting.popleft()
            source += 1  # First in, first out: states are taken in the order of their numbers.
            try:
                if self._is_goal(state):
                    goals.append(source)
                for label, is_fault, after in self._moves(state):
                    transitions += 1
                    target = numbers.setdefault(hash(after), len(numbers))
                    if target == len(labels):
                        origins.append(source)
                        labels.append(label)
                        self._check(after)
                        waiting.append(after)
                    if not is_fault:
                        sound.extend((source, target))
            except Broken as broken:
                return Explored(self.bounds, len(numbers), transitions, str(broken), self._way_to(source, origins, labels))
        stuck = cannot_reach(goals, sound, len(numbers))
        violation = f"stuck: from {len(stuck)} states not everything is ever delivered" if stuck else ""
        return Explored(
            self.bounds, len(numbers), transitions, violation, self._way_to(stuck[0], origins, labels) if stuck else []
        )

    def _way_to(self, number: int, origins: array[int], labels: list[Label]) -> list[str]:
        """The events that lead from the beginning to a state."""
        way: list[str] = []
        while number:
            text, item = labels[number]
            way.append(f"{text} {self._text(item)}" if item != NO_ITEM else text)
            number = origins[number]
        return way[::-1]

    def _begin(self) -> State:
        """Everybody is connected, the subscriber subscribes, and the publishers' puts are on their way."""
        broker = parts.start_broker(BrokerPart(0, empty := BrokerState().dump(), (), empty, ()))
        slot = (0, 0, 0, 0, 0, 0, p.NOBODY)
        subscriber, hello = parts.start_subscriber(SubscriberPart(SUBSCRIBER, 0, b"", slot))
        subscribe = p.Subscribe(parts.session_of(SUBSCRIBER, 1), 1, parts.TOPIC)
        broker, _ = self._exchange(broker, hello)
        broker, (done,) = self._exchange(broker, (Item(SUBSCRIBER, 1, 0, subscribe),))
        info: p.SubscriptionInfo = done.packet.subscription  # type: ignore[attr-defined]
        subscriber = subscriber._replace(slot=(info.subscription_id, info.topic_id, *slot[2:]))
        subscriber = parts.tell_subscriber(subscriber, self._exchange(broker, hello)[1][0])
        clients, up = [], []
        for client, messages in enumerate(self.bounds.messages):
            publisher, said = parts.start_publisher(parts.new_publisher(client, messages), forgets=True)
            broker, (welcome,) = self._exchange(broker, said)
            publisher, items, _ = parts.tell_publisher(publisher, welcome)
            clients.append(self._number(publisher))
            up.append(tuple(map(self._number, items)))
        members = (clients[0], clients[1], self._number(subscriber))
        return State(self._number(broker), members, (up[0], up[1], ()), (), (), 0, 0, 0, 0, 0)

    @staticmethod
    def _exchange(broker: BrokerPart, items: tuple[Item, ...]) -> tuple[BrokerPart, tuple[Item, ...]]:
        for item in items:
            broker = parts.receive(broker, item)
        return parts.end_drain(broker)

    # --- events --------------------------------------------------------------------------------------

    def _moves(self, state: State) -> Iterator[Move]:
        local = list(self._application_moves(state))
        if local:  # Nobody else sees these: only its own death can come between.
            yield from local
            yield from self._deaths(state, SUBSCRIBER)
            return
        broker: BrokerPart = self._number.values[state.broker]
        if broker.taken and broker.now == broker.synced:
            yield from self._speeches(state)  # Nothing to lose, and whoever comes later decides the same.
            return
        expecting = {self._number.values[number].client for number in state.late}
        for client in range(3):
            if client not in expecting and self._is_waiting_in_vain(state, client):
                yield from self._retries(state, client)
                yield from self._deaths(state, client)
                return
        yield from self._broker_moves(state)
        yield from self._late_moves(state)
        for client in range(3):
            yield from self._line_moves(state, client)
            yield from self._deaths(state, client)
            yield from self._retries(state, client)

    def _broker_moves(self, state: State) -> Iterator[Move]:
        broker: BrokerPart = self._number.values[state.broker]
        if broker.taken:
            yield from self._speeches(state)
        if state.crashes < self.bounds.crashes:
            after = state._replace(crashes=state.crashes + 1, up=((), (), ()))
            for is_kept in (False, True) if broker.now != broker.synced else (False,):
                fresh = self._number.once(self._crash_broker, state.broker, is_kept)
                yield _DEATHS[is_kept], True, after._replace(broker=fresh)

    def _speeches(self, state: State) -> Iterator[Move]:
        """The broker syncs and speaks: all is heard, or one answer is lost, or one is heard and comes again later."""
        broker, said = self._number.once(self._drained, state.broker)
        # To a life that is over nobody listens any more.
        items = [number for number in said if self._is_alive(state, number)]
        after = state._replace(broker=broker)
        yield _SPEAKS, False, self._hear_all(after, items)
        for index, number in enumerate(items):
            if state.drops < self.bounds.drops:
                rest = items[:index] + items[index + 1 :]
                yield ("lost:", number), True, self._hear_all(after._replace(drops=state.drops + 1), rest)
            if state.copies < self.bounds.copies:
                heard = self._hear_all(after._replace(copies=state.copies + 1), items)
                copy = self._stale(number, self._number.values[number].client)
                yield ("heard and copied:", number), True, heard._replace(late=tuple(sorted((*heard.late, copy))))

    def _is_alive(self, state: State, number: int) -> bool:
        item: Item = self._number.values[number]
        return bool(item.life == self._number.values[state.clients[item.client]].life)

    def _hear_all(self, state: State, items: list[int]) -> State:
        for number in items:
            state = self._hear(state, self._number.values[number].client, number)
        return state

    def _late_moves(self, state: State) -> Iterator[Move]:
        has_room = self._number.values[state.broker].taken < self.bounds.drain_packets
        for index, number in enumerate(state.late):
            rest = state._replace(late=state.late[:index] + state.late[index + 1 :])
            item: Item = self._number.values[number]
            if isinstance(item.packet, _ANSWERS):
                after = self._hear(rest, item.client, number) if self._is_alive(state, number) else rest
                yield ("late:", number), False, after
            elif has_room:
                yield ("late:", number), False, self._arrive(rest, number)

    def _drained(self, broker: int) -> tuple[int, tuple[int, ...]]:
        part, items = parts.end_drain(self._number.values[broker])
        return self._number(part), tuple(map(self._number, items))

    def _crash_broker(self, broker: int, is_kept: bool) -> int:
        return self._number(parts.crash_broker(self._number.values[broker], is_kept=is_kept))

    def _arrive(self, state: State, item: int) -> State:
        return state._replace(broker=self._number.once(self._received, state.broker, item))

    def _received(self, broker: int, item: int) -> int:
        return self._number(parts.receive(self._number.values[broker], self._number.values[item]))

    def _line_moves(self, state: State, client: int) -> Iterator[Move]:
        """The next packet on its way to the broker arrives, is lost, or leaves a copy behind."""
        up = state.up[client]
        if up:
            rest = state._replace(up=_with(state.up, client, up[1:]))
            if self._number.values[state.broker].taken < self.bounds.drain_packets:
                yield ("the broker takes", up[0]), False, self._arrive(rest, up[0])
            if state.drops < self.bounds.drops:
                yield ("lost:", up[0]), True, rest._replace(drops=state.drops + 1)
            if state.copies < self.bounds.copies:
                yield ("copied:", up[0]), True, state._replace(copies=state.copies + 1, late=tuple(sorted((*state.late, up[0]))))

    def _hear(self, state: State, client: int, item: int) -> State:
        if client == SUBSCRIBER:
            fresh = self._number.once(self._subscriber_hears, state.clients[client], item)
            is_answered = self._number.values[state.clients[client]].is_asking and not self._number.values[fresh].is_asking
            after = self._with_client(state, client, fresh)
            return self._forget_requests(after, client) if is_answered else after
        fresh, items, told = self._number.once(self._publisher_hears, state.clients[client], item)
        news = tuple(sorted({*state.told, *told}))
        return self._send(self._with_client(state, client, fresh), client, items)._replace(told=news)

    def _subscriber_hears(self, subscriber: int, item: int) -> int:
        return self._number(parts.tell_subscriber(self._number.values[subscriber], self._number.values[item]))

    def _publisher_hears(self, publisher: int, item: int) -> tuple[int, tuple[int, ...], tuple[parts.Told, ...]]:
        part, items, told = parts.tell_publisher(self._number.values[publisher], self._number.values[item])
        return self._number(part), tuple(map(self._number, items)), told

    @staticmethod
    def _with_client(state: State, client: int, part: int) -> State:
        return state._replace(clients=_with(state.clients, client, part))

    @staticmethod
    def _send(state: State, client: int, items: tuple[int, ...]) -> State:
        return state._replace(up=_with(state.up, client, state.up[client] + items)) if items else state

    # --- clients -------------------------------------------------------------------------------------

    def _deaths(self, state: State, client: int) -> Iterator[Move]:
        """A client dies and is started again; what its old connection had on its way may still arrive."""
        if state.crashes >= self.bounds.crashes:
            return
        for forgets in (True, False) if client != SUBSCRIBER else (True,):
            fresh, items = self._number.once(self._started, state.clients[client], forgets)
            after = self._with_client(state, client, fresh)._replace(crashes=state.crashes + 1)
            after = after._replace(up=_with(state.up, client, items))
            yield (_ENDS[client], NO_ITEM), True, after
            if state.up[client] and state.copies < self.bounds.copies:
                late = tuple(sorted((*state.late, state.up[client][0])))
                yield (
                    (f"{_ENDS[client]}, outlived by", state.up[client][0]),
                    True,
                    after._replace(late=late, copies=state.copies + 1),
                )

    def _retries(self, state: State, client: int) -> Iterator[Move]:
        if self._is_waiting_in_vain(state, client):
            fresh, items = self._number.once(self._retried, state.clients[client])
            after = self._forget_requests(self._with_client(state, client, fresh), client)
            yield (_RETRIES[client], NO_ITEM), False, self._send(after, client, items)

    def _started(self, client: int, forgets: bool) -> tuple[int, tuple[int, ...]]:
        part: PublisherPart | SubscriberPart = self._number.values[client]
        fresh: PublisherPart | SubscriberPart
        if isinstance(part, PublisherPart):
            fresh, items = parts.start_publisher(part, forgets=forgets)
        else:
            fresh, items = parts.start_subscriber(part)
        return self._number(fresh), tuple(map(self._number, items))

    def _retried(self, client: int) -> tuple[int, tuple[int, ...]]:
        part: PublisherPart | SubscriberPart = self._number.values[client]
        fresh: PublisherPart | SubscriberPart
        if isinstance(part, PublisherPart):
            fresh, items = parts.retry_publisher(part)
        else:
            fresh, items = parts.retry_subscriber(part)
        return self._number(fresh), tuple(map(self._number, items))

    def _is_waiting_in_vain(self, state: State, client: int) -> bool:
        """It waits for an answer, and nothing of its own is on its way."""
        if state.up[client]:
            return False
        broker: BrokerPart = self._number.values[state.broker]
        if any(entry.to.address[0] == client for entry, _ in broker.speech):  # type: ignore[union-attr]
            return False
        part = self._number.values[state.clients[client]]
        if client == SUBSCRIBER:
            return part.info is None or bool(part.is_asking)
        return not part.is_welcome or bool(part.entries)

    def _forget_requests(self, state: State, client: int) -> State:
        """Answers to what was given up are no answers any more. Only copies can still be on their way."""
        late = tuple(sorted(self._stale(number, client) for number in state.late))
        return state._replace(late=late)

    def _stale(self, number: int, client: int) -> int:
        item: Item = self._number.values[number]
        return self._number(item._replace(flag=STALE)) if item.client == client else number

    # --- the application -----------------------------------------------------------------------------

    def _application_moves(self, state: State) -> Iterator[Move]:
        number = state.clients[SUBSCRIBER]
        part: SubscriberPart = self._number.values[number]
        if part.info is None:
            return
        if part.doubt is not None:
            yield from self._settle_moves(state, part)
            return
        if part.blocks:
            fresh, message, offset = self._number.once(self._handed, number)
            yield ("a message is handed out", NO_ITEM), False, self._deliver(state, fresh, message, offset)
        elif not part.is_asking and part.next_offset < self.bounds.total:
            fresh, items = self._number.once(self._asked, number)
            yield ("the subscriber asks", NO_ITEM), False, self._finish(self._send(self._with_client(state, 2, fresh), 2, items))
        if part.slot[2] < part.slot[3]:
            fresh, items = self._number.once(self._acknowledged, number)
            yield (
                ("the subscriber acknowledges", NO_ITEM),
                False,
                self._finish(self._send(self._with_client(state, 2, fresh), 2, items)),
            )

    def _handed(self, subscriber: int) -> tuple[int, str, int]:
        part, (message, offset) = parts.hand_out(self._number.values[subscriber])
        return self._number(part), message, offset

    def _asked(self, subscriber: int) -> tuple[int, tuple[int, ...]]:
        part, items = parts.ask(self._number.values[subscriber])
        return self._number(part), tuple(map(self._number, items))

    def _acknowledged(self, subscriber: int) -> tuple[int, tuple[int, ...]]:
        part, items = parts.acknowledge(self._number.values[subscriber])
        return self._number(part), tuple(map(self._number, items))

    def _deliver(self, state: State, fresh: int, message: str, offset: int) -> State:
        """S11: every message from the start on, in order, once."""
        if offset != state.expected:
            raise Broken(f"deliveries: {message} was handed out at {offset} where {state.expected} was next")
        broker: BrokerPart = self._number.values[state.broker]
        if offset >= len(broker.log) or broker.log[offset].message != message:
            raise Broken(f"inconsistent-offsets: {message} was handed out, the log has another message at {offset}")
        return self._with_client(state, SUBSCRIBER, fresh)._replace(expected=offset + 1, finished=offset)

    @staticmethod
    def _finish(state: State) -> State:
        return state._replace(finished=state.expected)

    def _settle_moves(self, state: State, part: SubscriberPart) -> Iterator[Move]:
        """What is in doubt was handed out and not finished, all of it and nothing else; the application decides."""
        doubt = part.doubt
        if doubt is None or doubt.first < state.finished or doubt.end != state.expected:
            raise Broken(f"in-doubt-bound: {doubt} is in doubt, [{state.finished}, {state.expected}) may be")
        for choice in ("repeat", "skip"):
            fresh = self._number.once(self._settled, state.clients[SUBSCRIBER], choice)
            at = doubt.first if choice == "repeat" else doubt.end
            yield (
                (f"settled: {choice}", NO_ITEM),
                False,
                self._with_client(state, SUBSCRIBER, fresh)._replace(expected=at, finished=at),
            )

    def _settled(self, subscriber: int, choice: str) -> int:
        return self._number(parts.settle(self._number.values[subscriber], choice))

    # --- laws ----------------------------------------------------------------------------------------

    def _check(self, state: State) -> None:
        self._number.once(self._check_log, state.broker)
        self._number.once(self._check_told, state.broker, state.told)

    def _check_log(self, broker: int) -> None:
        """S3, S4, S6, S8: each message once, in its publisher's order, without holes; nothing else."""
        log = self._number.values[broker].log
        messages = [entry.message for entry in log]
        if len(set(messages)) != len(messages):
            raise Broken(f"duplicate: the log is {messages}")
        if [entry.source.first_offset for entry in log] != list(range(len(log))):
            raise Broken("gap-in-log: offsets are not 0, 1, 2 ...")
        for put in self.bounds.messages:
            found = [message for message in messages if message in put]
            if found != list(put[: len(found)]):
                raise Broken(f"nonmonotonic-send: {found} of {list(put)} are stored")

    def _check_told(self, broker: int, told: tuple[parts.Told, ...]) -> None:
        """S1, S5, S7, S9: what was confirmed is where it was said to be, and was said once."""
        log = self._number.values[broker].log
        if len(dict(told)) != len(told):
            raise Broken(f"two-answers: {told}")
        for message, offset in told:
            if offset >= len(log) or log[offset].message != message:
                raise Broken(f"lost-write: {message} was confirmed at {offset}, and is not there")

    def _is_goal(self, state: State) -> bool:
        """All is confirmed, delivered and finished."""
        puts = (self._number.values[number] for number in state.clients[:2])
        return state.finished == self.bounds.total and not any(part.entries for part in puts)

    def _text(self, number: int) -> str:
        item: Item = self._number.values[number]
        return f"{type(item.packet).__name__} {item.message} of {parts.name_of(item.client)} {item.life}".replace("  ", " ")


def _with(values: tuple[Any, Any, Any], index: int, value: Any) -> tuple[Any, Any, Any]:
    changed = list(values)
    changed[index] = value
    return changed[0], changed[1], changed[2]


def explore(bounds: Bounds | None = None) -> Explored:
    """Search everything within these bounds."""
    return Explorer(bounds or Bounds()).run()
