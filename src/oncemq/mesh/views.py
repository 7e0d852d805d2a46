# SPDX-License-Identifier: Apache-2.0
"""What a node knows of others without being linked to them: the passive view, the cold list, and who is in quarantine.

May not: send anything, or iterate in an order that depends on hashes.
The idea: the passive view is the paper's: a random reserve that shuffles renew. The cold list is ours: a sample of *all*
ids ever heard, chosen by a hash with this node's own salt, so that no amount of shuffling pushes out those who
are behind a split. It refills the passive view after a crash wave, and its ids are probed, so that splits heal.
Next: hyparview.py, which uses all three.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Iterable, Iterator

from crc32c import crc32c

from oncemq.limits import MESH_COLD_FAILURES_MAX, MESH_QUARANTINE_MAX
from oncemq.mesh.dice import pick, sample
from oncemq.mesh.packets import Address
from oncemq.ports import Dice


class PassiveView:
    """A bounded set with random picks. A list and the place of each id in it: removing swaps the last one in."""

    def __init__(self, size_max: int, dice: Dice) -> None:
        self.ids: list[Address] = []
        self._place: dict[Address, int] = {}
        self._size_max = size_max
        self._dice = dice

    def __contains__(self, address: object) -> bool:
        return address in self._place

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, address: Address, sent: list[Address] | None = None) -> None:
        """Take an id in. When full, first what was just sent to the other side goes, then anybody (HyParView 4.4)."""
        if address in self._place or self._size_max < 1:
            return
        while len(self.ids) >= self._size_max:
            victim = sent.pop() if sent else pick(self._dice, self.ids)
            self.remove(victim)
        self._place[address] = len(self.ids)
        self.ids.append(address)

    def remove(self, address: Address) -> None:
        place = self._place.pop(address, None)
        if place is None:
            return
        last = self.ids.pop()
        if last != address:
            self.ids[place] = last
            self._place[last] = place

    def sample(self, count: int) -> list[Address]:
        return sample(self._dice, self.ids, count)


class ColdList:
    """The `size_max` ids with the smallest salted hash of all that were ever heard; contacts stay for ever."""

    def __init__(self, size_max: int, dice: Dice, contacts: Iterable[Address] = ()) -> None:
        self._size_max = size_max
        self._dice = dice
        self._salt = int(dice.random() * 2**32)
        self._ranks: list[tuple[int, Address]] = []
        self._contacts = dict.fromkeys(contacts)
        self._entries = dict(self._contacts)
        self._failures: dict[Address, int] = {}
        """How often an entry was found dead since it last answered; those that never were are not in here."""
        self._tried_ms: dict[Address, int] = {}
        self._hopeless = 0
        """Entries that failed so often that a new id may take their place; an upper bound."""

    def __contains__(self, address: object) -> bool:
        return address in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Address]:
        return iter(self._entries)

    def learn(self, address: Address) -> None:
        """Hear of an id. The checksum spreads ids evenly, the salt makes every node keep others."""
        if address in self._entries or self._size_max < 1:
            return
        rank = crc32c(address.encode()) ^ self._salt
        if len(self._ranks) >= self._size_max:
            if rank >= self._ranks[-1][0] and not self._drop_hopeless():
                return
            if len(self._ranks) >= self._size_max:
                self._drop(self._ranks.pop()[1])
        insort(self._ranks, (rank, address))
        self._entries[address] = None

    def _drop(self, address: Address) -> None:
        del self._entries[address]
        self._failures.pop(address, None)
        self._tried_ms.pop(address, None)

    def _drop_hopeless(self) -> bool:
        """Let an id go that has failed too often; looked for in one random place, so that hearing ids stays cheap."""
        if not self._hopeless:
            return False
        _, address = pick(self._dice, self._ranks)
        if self._failures.get(address, 0) < MESH_COLD_FAILURES_MAX:
            return False
        self._hopeless -= 1
        self.forget(address)
        return True

    def forget(self, address: Address) -> None:
        """It left in good order."""
        if address in self._contacts or address not in self._entries:
            return
        self._drop(address)
        rank = crc32c(address.encode()) ^ self._salt
        del self._ranks[bisect_left(self._ranks, (rank, address))]

    def failed(self, address: Address, now_ms: int) -> None:
        if address in self._entries:
            self._failures[address] = failures = self._failures.get(address, 0) + 1
            self._tried_ms[address] = now_ms
            self._hopeless += failures == MESH_COLD_FAILURES_MAX

    def answered(self, address: Address) -> None:
        """It is there."""
        self._failures.pop(address, None)

    def spare(self, known: Container[Address], shunned: Container[Address]) -> Address | None:
        """A random id that is not known yet and did not fail, to refill the passive view with."""
        failures = self._failures
        fit = [each for each in self._entries if each not in failures and each not in known and each not in shunned]
        return pick(self._dice, fit) if fit else None

    def next_probe(self, now_ms: int, known: Container[Address]) -> Address | None:
        """Whom to probe: of a few random ones the one that was tried longest ago. Behind a split is half of them, or we are."""
        fit = [each for each in self._entries if each not in known]
        if not fit:
            return None
        address = min(sample(self._dice, fit, 4), key=lambda each: self._tried_ms.get(each, -1))
        self._tried_ms[address] = now_ms
        return address


class Quarantine:
    """Ids proven dead: not believed from others for a while, or they would go round in shuffles for ever."""

    def __init__(self, duration_ms: int) -> None:
        self._duration_ms = duration_ms
        self._until: dict[Address, int] = {}

    def __contains__(self, address: object) -> bool:
        return address in self._until

    def add(self, address: Address, now_ms: int) -> None:
        self._until.pop(address, None)
        self._until[address] = now_ms + self._duration_ms
        if len(self._until) > MESH_QUARANTINE_MAX:
            del self._until[next(iter(self._until))]

    def release(self, address: Address) -> None:
        self._until.pop(address, None)

    def expire(self, now_ms: int) -> None:
        """Oldest first: dictionaries keep the order of insertion."""
        while self._until:
            address, until_ms = next(iter(self._until.items()))
            if until_ms > now_ms:
                return
            del self._until[address]
