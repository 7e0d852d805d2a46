# SPDX-License-Identifier: Apache-2.0
"""Seeded bugs of transactions, of effects in a database, and of receive(): ways to do something twice, or not at all.

May not: be imported by anything but sim/bugs.py.
The idea: as in bugs_broker.py; each is caught by the relay, the ledger or the receiver of a world.
Next: core/transactions.py, client/transactions.py, client/effects.py and client/receiving.py, which they break.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oncemq.client import effects, receiving, transactions
from oncemq.core import transactions as core_transactions
from oncemq.core.gets import find_subscription
from oncemq.core.records import CursorChange
from oncemq.core.topics import BROKER
from oncemq.sim.bugs import Patch, bug


@bug
def runs_a_commit_without_an_answer_again(patch: Patch) -> None:
    """Nobody asks what became of it: the body runs again under the next number, and the broker takes the higher cursor (H28)."""

    def forget(self: transactions.Transactions) -> None:
        commit, self._unknown = self._unknown, None
        if commit is not None:
            self._puts.took(commit.packet.number, commit.packet.numbers)
            self._puts.publisher.is_held = False
            for feed, begin, bookmark in commit.reads:
                feed.set_back(begin, bookmark)

    def highest(state: Any, offer: Any, ack: Any) -> CursorChange:
        found: Any = find_subscription(state, offer.client, ack.subscription_id, ack.topic_id, BROKER)
        return CursorChange(found.subscription_id, found.cursor, max(found.cursor, ack.end))

    patch.set(transactions.Transactions, "resolve", forget)
    patch.set(core_transactions, "_check_ack", highest)


@bug
def moves_the_row_after_the_commit(patch: Patch) -> None:
    """First the effects, then a word with the broker, then the place: who dies in between does them again (R16)."""

    def later(_: effects.DatabaseTransaction, place: effects.Place) -> None:
        place.now = place.feed.place

    def commit(self: effects.DatabaseTransaction) -> None:
        self._database.commit()
        moved = [place for place in self._places.values() if place.now != place.begin]
        for place in moved:
            self._effects._expect_current(place.feed)
        self._database.begin()
        for place in moved:
            self._table.move(place.feed, place.begin)
        self._database.commit()

    patch.set(effects.DatabaseTransaction, "_move", later)
    patch.set(effects.DatabaseTransaction, "_are_moved", lambda _: True)  # Or the client itself notices, at once.
    patch.set(effects.DatabaseTransaction, "_commit", commit)


@bug
def reads_on_although_the_row_was_rolled_back(patch: Patch) -> None:
    """A feed is not set back to where the row stands: what was in a transaction that was rolled back is passed over."""
    lock = effects.Effects.lock

    def trusting(self: effects.Effects, table: effects.Table, feed: Any) -> effects.Place:
        begun = feed.place, feed.bookmark
        place = lock(self, table, feed)
        if begun[0] > place.begin:
            feed.set_back(*begun)
        return place

    patch.set(effects.Effects, "lock", trusting)


@bug
def finishes_what_was_left_by_an_exception(patch: Patch) -> None:
    """Leaving a receive acknowledges, however it is left."""
    leave = receiving.Receive.__exit__
    patch.set(receiving.Receive, "__exit__", lambda self, *_: leave(self, None, None, None))


@bug
def does_not_count_what_is_given_again(patch: Patch) -> None:
    """A message that is received for the second time does not say so."""
    give = receiving.Receiving.give
    patch.set(receiving.Receiving, "give", lambda self, *place: replace(give(self, *place), attempt=1))
