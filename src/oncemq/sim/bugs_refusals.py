# SPDX-License-Identifier: Apache-2.0
"""Seeded bugs of refusals that are outcomes: what is refused for good, and everything that is committed with it.

May not: be imported by anything but sim/bugs.py.
Next: sim/callers.py for who is refused, core/puts.py and core/transactions.py for the rules.
"""

from __future__ import annotations

from msgspec.structs import replace

from oncemq.client import puts as client_puts
from oncemq.core import broker, puts, state, transactions
from oncemq.core.effects import Effects
from oncemq.core.packets import PutDone
from oncemq.core.streams import Stream
from oncemq.sim.bugs import Patch, bug


@bug
def forgets_what_it_refused(patch: Patch) -> None:
    """A refused put is answered and not written down: its number is not used up, and the next one is a gap (R4)."""
    final = puts._final
    patch.set(puts, "_final", lambda offer, code, crc: Effects((), final(offer, code, crc).speech))


@bug
def forgets_a_transaction_it_refused(patch: Patch) -> None:
    """The same for a transaction."""
    final = transactions._final
    patch.set(transactions, "_final", lambda offer, code, crc: Effects((), final(offer, code, crc).speech))


@bug
def repeats_a_refusal_as_stored(patch: Patch) -> None:
    """Who asks again is told that the number is taken, and so believes that the message is stored (R5)."""

    def repeated(offer: puts.Offer, stream: Stream) -> Effects:
        kept = stream.outcome_at(offer.packet.first_number)
        return repeat(offer, Stream(stream.last) if kept is not None and kept.code else stream)

    repeat = puts._repeat
    patch.set(puts, "_repeat", repeated)


@bug
def commits_what_nobody_hears(patch: Patch) -> None:
    """A transaction does not look who subscribes to what it puts strictly."""
    decide = transactions.decide_transact

    def lenient(broker_state: state.BrokerState, offer: transactions.TransactOffer) -> Effects:
        entries = tuple(replace(put, strict=False) for put in offer.packet.puts)
        return decide(broker_state, replace(offer, packet=replace(offer.packet, puts=entries)))

    patch.set(broker, "decide_transact", lenient)


@bug
def refuses_in_silence(patch: Patch) -> None:
    """Of a refused put that nobody waits for, nobody is told: flush() says that all is well."""
    settle = client_puts.Puts._on_put_done

    def silent(self: client_puts.Puts, request: int, done: PutDone) -> None:
        settle(self, request, done)
        self._refused.clear()

    patch.set(client_puts.Puts, "_on_put_done", silent)
