# SPDX-License-Identifier: Apache-2.0
"""Seeded bugs of those who wait, at both ends: nothing is lost or done twice, but somebody waits for what will not come.

May not: be imported by anything but sim/bugs.py.
The idea: as in bugs_broker.py; each is caught by a judge of sim/progress.py, most of them by others as well.
Next: client/session.py, client/gets.py and core/gets.py, which they break.
"""

from __future__ import annotations

from typing import Any

from oncemq.client import gets, puts, session
from oncemq.core import broker
from oncemq.core import gets as core_gets
from oncemq.core import live as core_live
from oncemq.core.effects import Deliver
from oncemq.limits import BACKOFF_MS
from oncemq.sim.bugs import Patch, bug


@bug
def pauses_longer_after_every_loss(patch: Patch) -> None:
    """The pause behind a lost connection is doubled for a whole life: no answer resets it, and it has no bound."""

    def restart(self: Any, _: int) -> None:
        self.renew()
        self.losses = getattr(self, "losses", 0) + 1
        self.clock.pause(BACKOFF_MS << min(self.losses, 20))

    patch.set(session.Session, "restart", restart)


@bug
def waits_for_an_answer_that_cannot_come(patch: Patch) -> None:
    """A Get that was under way on a connection that is gone counts as under way: nobody asks again."""
    patch.set(gets.Gets, "on_reset", lambda _self: None)


@bug
def counts_as_sent_what_was_lost(patch: Patch) -> None:
    """Puts that were under way on a connection that is gone are not sent again."""
    patch.set(puts.Puts, "on_reset", lambda self: self._requests.clear())


@bug
def forgets_who_waits_when_somebody_acknowledges(patch: Patch) -> None:
    """Gets that wait at the broker are dropped, without an answer, when a cursor moves."""
    remember = broker.BrokerMachine._remember

    def forgetful(self: broker.BrokerMachine, done: dict[int, int], now: Any) -> None:
        remember(self, done, now)
        if done:
            self._parking.take_all()

    patch.set(broker.BrokerMachine, "_remember", forgetful)


@bug
def starves_who_comes_back_until_the_next_put(patch: Patch) -> None:
    """What a subscription was sent once it is not sent again before something new is put: an answer that was lost, or a client
    that died with it, counts as served."""
    deliver = core_gets.deliver

    def once(state: Any, to: Any, packet: Any) -> Any:
        sent = state.__dict__.setdefault("sent", {})
        ends = {want.subscription_id: state.topics[want.topic_id].end for want in packet.wants}
        delivery = deliver(state, to, packet)
        if all(sent.get(subscription_id) == end for subscription_id, end in ends.items()):
            return Deliver(to, delivery.parts, (), packet.bytes_max, delivery.through)
        if delivery.ranges:
            sent.update(ends)
        return delivery

    patch.set(core_gets, "deliver", once)
    patch.set(broker, "deliver", once)


@bug
def trusts_a_silent_channel(patch: Patch) -> None:
    """A channel that was heard once is relied on for ever: a listener whose connection is gone asks nobody any more."""
    patch.set(core_live.Follower, "is_heard", lambda self, _: self._heard_ms is not None)
