# SPDX-License-Identifier: Apache-2.0
"""All that a node knows of others besides its neighbours, and how ids come in and go out.

May not: link to anybody.
The idea: an id that is heard goes to the passive view and, perhaps, the cold list. One that is proven dead leaves the passive
view, is not believed for a while, and is replaced out of the cold list: a crash wave empties the cold list into the passive view
as far as that is needed, without any threshold.
Next: views.py for the three of them, hyparview.py for who uses them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from oncemq.mesh.packets import Address
from oncemq.mesh.settings import MeshSettings
from oncemq.mesh.views import ColdList, PassiveView, Quarantine
from oncemq.ports import Dice


class Reserve:
    def __init__(
        self,
        me: Address,
        settings: MeshSettings,
        dice: Dice,
        contacts: Iterable[Address],
        linked: tuple[Collection[Address], Collection[Address]],
    ) -> None:
        """`linked` are the neighbours and those who were asked."""
        self.passive = PassiveView(settings.passive, dice)
        self.cold = ColdList(settings.cold, dice, contacts)
        self.quarantine = Quarantine(settings.quarantine_ms)
        self._me = me
        self._active, self._asked = linked
        self._settings = settings

    def others(self) -> list[Address]:
        """Everybody who is known and no neighbour, the likelier living first."""
        return [each for each in dict.fromkeys((*self.passive.ids, *self.cold)) if each not in self._active]

    def learn(self, ids: Iterable[Address], sent: list[Address] | None = None) -> None:
        """Hear of ids. `sent` are those of ours that the other side got for them: they go first when there is no room."""
        me, active, passive, quarantine = self._me, self._active, self.passive, self.quarantine
        for address in ids:
            if address == me or not address or address in quarantine:
                continue
            self.cold.learn(address)
            if address not in active and address not in passive:
                passive.add(address, sent)

    def bury(self, now_ms: int, address: Address) -> None:
        """It is proven dead: nowhere to be kept but in the cold list; the passive view gets another id for it."""
        self.passive.remove(address)
        self.cold.failed(address, now_ms)
        self.quarantine.add(address, now_ms)
        if len(self.passive) < self._settings.passive:
            known = {self._me, *self._active, *self._asked, *self.passive.ids}
            spare = self.cold.spare(known, self.quarantine)
            if spare is not None:
                self.passive.add(spare)

    def forget(self, now_ms: int, address: Address) -> None:
        """It left in good order."""
        self.passive.remove(address)
        self.cold.forget(address)
        self.quarantine.add(address, now_ms)

    def names_for(self, address: Address) -> list[Address]:
        """Ids that help somebody who looks for neighbours."""
        return [each for each in self.passive.sample(self._settings.shuffle_passive) if each != address]
