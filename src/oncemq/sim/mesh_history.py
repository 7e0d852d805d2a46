# SPDX-License-Identifier: Apache-2.0
"""What an observer outside the nodes saw in a run of a small mesh: offers, confirmations, hand-overs, and words.

May not: ask a node anything; it is told what happened, and keeps its own books.
The idea: the observer applies every synced record to books of its own. What a node says it has is compared with these books
at the instant it says so.
Next: sim/mesh_checkers.py, which judge at the end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from oncemq.mesh.effects import Down, HandOver, TellGap, Up
from oncemq.mesh.packets import Address, Had, Origin
from oncemq.mesh.records import GivenUp, MeshRecord, Taken, TopicUnwanted, TopicWanted
from oncemq.mesh.state import NodeState

Key = tuple[Origin, int]


@dataclass(frozen=True, slots=True)
class Offer:
    """A message as its publisher put it."""

    node: Address
    topics: tuple[str, ...]
    block: bytes
    has_more: bool
    """The next one belongs to the same transaction."""


@dataclass(slots=True)
class Book:
    """What the observer knows of one node."""

    synced: NodeState = field(default_factory=NodeState)
    digests: dict[bytes, None] = field(default_factory=lambda: {bytes(8): None})
    """Of all states that were ever on its disk."""
    handed: dict[Origin, list[int]] = field(default_factory=dict)
    subscribed: dict[str, int] = field(default_factory=dict)
    """Topic: number of the confirmation that made the subscription durable."""
    ever_wanted: dict[str, None] = field(default_factory=dict)
    neighbours: dict[Address, None] = field(default_factory=dict)
    gaps: list[TellGap] = field(default_factory=list)
    untold: dict[tuple[Origin, int, int], None] = field(default_factory=dict)
    """What was given up, and is still to be told."""
    was_set_back: bool = False
    is_gone: bool = False


class MeshHistory:
    def __init__(self) -> None:
        self.offers: dict[Key, Offer] = {}
        self.confirmed: dict[Key, int] = {}
        """Messages whose put was confirmed, with the number of the confirmation."""
        self.books: dict[Address, Book] = {}
        self.violations: dict[str, list[str]] = {}
        self.downs: Counter[str] = Counter()
        self.confirmations = 0
        self.confirmed_ms: dict[Key, int] = {}
        self.stored_ms: dict[tuple[Address, Key], int] = {}

    def violate(self, law: str, text: str) -> None:
        self.violations.setdefault(law, []).append(text)

    def book(self, address: Address) -> Book:
        book = self.books.get(address)
        if book is None:
            book = self.books[address] = Book()
        return book

    # --- lives --------------------------------------------------------------------------------------------

    def started(self, address: Address, _now_ms: int) -> None:
        book = self.book(address)
        book.neighbours.clear()
        book.untold.clear()  # Who dies before it has told a gap has it on its disk, where subscriptions find it.
        book.is_gone = False

    def stopped(self, address: Address) -> None:
        book = self.book(address)
        book.neighbours.clear()
        book.untold.clear()

    def left(self, address: Address) -> None:
        self.book(address).is_gone = True

    def set_back(self, address: Address, left: list[MeshRecord]) -> None:
        """An older copy was put back: whatever it was handed since is forgotten, as its clients are told (R1)."""
        self.books[address] = book = Book(was_set_back=True)
        for record in left:
            book.synced.apply(record)
            if isinstance(record, TopicWanted):
                book.ever_wanted[record.topic] = None
            book.digests[book.synced.had.digest] = None

    # --- messages -----------------------------------------------------------------------------------------

    def offered(self, origin: Origin, number: int, offer: Offer) -> None:
        if (origin, number) in self.offers:
            self.violate("P1 integrity", f"{offer.node} gave number {number} of one origin to two messages")
        self.offers[origin, number] = offer

    def wrote(self, address: Address, record: MeshRecord) -> None:
        """P1, at the instant of writing: what is stored was published, byte for byte."""
        if isinstance(record, Taken):
            offer = self.offers.get((record.origin, record.number))
            told = (record.topics, bytes(record.block), record.has_more)
            if offer is None or (offer.topics, offer.block, offer.has_more) != told:
                self.violate("P1 integrity", f"{address} stored number {record.number}, which nobody put like that")

    def synced(self, address: Address, records: list[MeshRecord], now_ms: int) -> None:
        book = self.book(address)
        self._check_whole(address, records)
        for record in records:
            book.synced.apply(record)
            book.digests[book.synced.had.digest] = None
            self.confirmations += 1
            if isinstance(record, Taken):
                key = (record.origin, record.number)
                self.stored_ms.setdefault((address, key), now_ms)
                if record.origin == book.synced.origin:
                    self.confirmed[key] = self.confirmations
                    self.confirmed_ms[key] = now_ms
            elif isinstance(record, TopicWanted):
                book.subscribed.setdefault(record.topic, self.confirmations)
                book.ever_wanted[record.topic] = None
            elif isinstance(record, TopicUnwanted):
                book.subscribed.pop(record.topic, None)
            elif isinstance(record, GivenUp):
                book.untold[record.origin, record.first, record.last] = None

    def _check_whole(self, address: Address, records: list[MeshRecord]) -> None:
        """R27: what one sync covers has no transaction without its end, or word that it is lost."""
        taken = {(record.origin, record.number): record.has_more for record in records if isinstance(record, Taken)}
        lost = {(record.origin, record.first) for record in records if isinstance(record, GivenUp)}
        for (origin, number), has_more in taken.items():
            if has_more and (origin, number + 1) not in taken and (origin, number + 1) not in lost:
                self.violate("R27 transaction", f"{address} stored number {number} without the rest of its transaction")

    def handed(self, address: Address, each: HandOver) -> None:
        """P2 and P4: once per node, in each origin's order; and only what the node subscribes to."""
        offer = self.offers.get((each.origin, each.number))
        if offer is None or not set(each.topics) <= set(offer.topics) or not self._has_wanted(address, each.topics):
            self.violate("topic filter", f"{address} was handed number {each.number} for {each.topics}")
        numbers = self.book(address).handed.setdefault(each.origin, [])
        if numbers and each.number <= numbers[-1]:
            law = "P2 at most once" if each.number in numbers else "P4 order"
            self.violate(law, f"{address} was handed number {each.number} of an origin after {numbers[-1]}")
        numbers.append(each.number)

    def _has_wanted(self, address: Address, topics: tuple[str, ...]) -> bool:
        """Whether each topic was subscribed to at some time; an unsubscription of the same drain comes a moment later."""
        wanted = self.book(address).ever_wanted
        return all(topic in wanted for topic in topics)

    def told_gap(self, address: Address, each: TellGap) -> None:
        book = self.book(address)
        book.gaps.append(each)
        if book.untold.pop((each.origin, each.first, each.last), each) is each:
            self.violate("G8 gap", f"{address} told a gap that it has not given up: {each}")

    # --- words --------------------------------------------------------------------------------------------

    def told_digest(self, address: Address, digest: bytes) -> None:
        if digest not in self.book(address).digests:
            self.violate("R24 told before synced", f"{address} told the digest of a state that is not on its disk")

    def told_entries(self, address: Address, entries: tuple[Had, ...]) -> None:
        if not self.book(address).synced.had.covers(entries):
            self.violate("R24 told before synced", f"{address} told a vector that is not on its disk")

    def changed(self, address: Address, each: Up | Down) -> None:
        """No double Up, no double Down, nobody is its own neighbour."""
        neighbours = self.book(address).neighbours
        is_up = isinstance(each, Up)
        if each.address == address or is_up == (each.address in neighbours):
            self.violate("P5 overlay", f"{address} said {each} out of turn")
        if isinstance(each, Up):
            neighbours[each.address] = None
        else:
            neighbours.pop(each.address, None)
            self.downs[each.reason.name.lower()] += 1
