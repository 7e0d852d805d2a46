# SPDX-License-Identifier: Apache-2.0
"""What another node is to this one: a stranger, somebody we asked, a neighbour; and every way from one to another.

May not: allow a change that is not in the table: docs/mesh.md draws its diagram from it.
The idea: two dictionaries, active and asked, that only `move` changes. An id is in one of them at most.
Next: hyparview.py for who calls; diagrams.py for the picture.
"""

from __future__ import annotations

import enum

from oncemq.errors import invariant
from oncemq.mesh.packets import NOWHERE, Address, Priority


class Standing(enum.Enum):
    STRANGER = "stranger"
    ASKED = "asked"
    NEIGHBOUR = "neighbour"


class Cause(enum.Enum):
    """What moves somebody from one standing to another, in the words of the diagram."""

    ASK = "we ask it"
    ACCEPTED = "it accepts"
    REFUSED = "it refuses"
    UNANSWERED = "no answer in time"
    TOO_LATE = "it accepts, places are taken"
    ADMITTED = "we accept it"
    ENDED = "link ends, with a reason"


S, C = Standing, Cause
TRANSITIONS: dict[tuple[Standing, Cause], Standing] = {
    (S.STRANGER, C.ASK): S.ASKED,
    (S.STRANGER, C.ADMITTED): S.NEIGHBOUR,
    (S.ASKED, C.ACCEPTED): S.NEIGHBOUR,
    (S.ASKED, C.ADMITTED): S.NEIGHBOUR,  # Both asked at the same time; one of the two asks counts.
    (S.ASKED, C.REFUSED): S.STRANGER,
    (S.ASKED, C.UNANSWERED): S.STRANGER,
    (S.ASKED, C.TOO_LATE): S.STRANGER,
    (S.NEIGHBOUR, C.ENDED): S.STRANGER,
}


class Link:
    """A link to a neighbour: its number, and when we last heard of the other end."""

    __slots__ = ("heard_ms", "number")

    def __init__(self, number: int, now_ms: int) -> None:
        self.number = number
        self.heard_ms = now_ms


class Ask:
    """A request of ours that is on its way."""

    __slots__ = ("asked_ms", "is_slow", "number", "partner", "priority", "worth")

    def __init__(self, number: int, now_ms: int, priority: Priority, partner: Address) -> None:
        self.number = number
        self.asked_ms = now_ms
        self.priority = priority
        self.partner = partner
        self.is_slow = False
        self.worth = 2 if priority in (Priority.HIGH, Priority.JOIN) else 1
        """Places it will fill: whoever makes room for us sends us somebody as well."""


class Relations:
    """Everybody who is more than a stranger."""

    def __init__(self) -> None:
        self.active: dict[Address, Link] = {}
        self.asked: dict[Address, Ask] = {}

    def standing_of(self, address: Address) -> Standing:
        if address in self.active:
            return Standing.NEIGHBOUR
        return Standing.ASKED if address in self.asked else Standing.STRANGER

    def rename(self, number: int, address: Address) -> Address:
        """Who was asked by one name and answers by another goes by its own: return the name it was asked by, if this is so.

        A contact may be named by a number, and call itself by the name of its machine.
        """
        names = [asked for asked, ask in self.asked.items() if ask.number == number and asked != address]
        if not names or self.standing_of(address) is not Standing.STRANGER:
            return NOWHERE
        ask = self.asked[names[0]]
        self.move(names[0], Cause.UNANSWERED)
        self.move(address, Cause.ASK, ask)
        return names[0]

    def move(self, address: Address, cause: Cause, to: Link | Ask | None = None) -> None:
        """Change somebody's standing as the table says."""
        after = TRANSITIONS.get((self.standing_of(address), cause))
        invariant(after is not None, "no such way from one standing to another", address=address, cause=cause)
        self.active.pop(address, None)
        self.asked.pop(address, None)
        if isinstance(to, Link):
            self.active[address] = to
        elif isinstance(to, Ask):
            self.asked[address] = to
        invariant(self.standing_of(address) is after, "a standing that the table does not say", address=address, cause=cause)
