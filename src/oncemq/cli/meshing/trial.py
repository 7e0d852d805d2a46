# SPDX-License-Identifier: Apache-2.0
"""One trial of a real mesh: every node puts, some are killed with -9 in the middle of it, they come back, and all is counted.

May not: judge (verdict.py does), or wait without a deadline.
The idea: in the middle of the puts a share of the nodes is killed; the survivors go on, and must agree on what any of them holds.
Then the dead are started again on their directories, everybody puts the rest, and every node must have had everything once.
Next: nodes.py and crowd.py for the cast.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from oncemq.cli.meshing.crowd import Application, Crowd
from oncemq.cli.meshing.nodes import Node, Nodes, wait_until
from oncemq.cli.meshing.verdict import Witnesses, judge, judge_overlay
from oncemq.cli.torturing.recorder import merged
from oncemq.limits import MESH_ACTIVE
from oncemq.mesh.packets import MeshPacket

PATIENCE_S = 120.0
"""How long a mesh on a busy machine may take to agree."""
_LOOK_S = 0.3
"""Between two looks at the overlay: asking costs the nodes more than their own packets."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a trial does. `failed` is the share of nodes that is killed, 0 to 1."""

    nodes: int = 20
    messages: int = 20
    failed: float = 0.5
    seed: int = 0
    options: tuple[str, ...] = ()


@dataclass(slots=True)
class Result:
    """What came of it: figures, and what was broken."""

    nodes: int
    messages: int
    failed: float
    killed: int = 0
    join_s: float = 0.0
    converge_s: float = 0.0
    """From the first process to full views, symmetric and connected."""
    survivors_agree_s: float = 0.0
    """From the last put of the survivors until all of them had everything that any of them held."""
    all_agree_s: float = 0.0
    """From the last put after the restart until every node had everything."""
    put: int = 0
    delivered: int = 0
    packets: dict[str, int] = field(default_factory=dict)
    """Packets of membership that were sent, by type, and messages of the mesh that were received."""
    overlay: dict[str, list[str]] = field(default_factory=dict)
    """Who counted whom as a neighbour when all had joined, by name."""
    violations: Witnesses = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        return not self.violations

    def as_row(self) -> dict[str, object]:
        return asdict(self) | {"is_right": self.is_right}


def run_trial(directory: Path, plan: Plan, say: Say = lambda _text: None) -> Result:
    """Run one trial in an empty directory and judge it."""
    result = Result(plan.nodes, plan.messages, plan.failed)
    with Nodes(directory, plan.nodes, plan.options) as nodes:
        crowd = Crowd(nodes, directory)
        try:
            _Trial(plan, nodes, crowd, result, say).run(directory)
        finally:
            crowd.close()
    return result


class _Trial:
    def __init__(self, plan: Plan, nodes: Nodes, crowd: Crowd, result: Result, say: Say) -> None:
        self._plan, self._nodes, self._crowd, self._result, self._say = plan, nodes, crowd, result, say
        self._chance = random.Random(plan.seed)  # noqa: S311 - to be drawn again from the same seed

    def run(self, directory: Path) -> None:
        self._assemble()
        first_half = self._plan.messages // 2
        self._put(self._crowd.all, first_half)
        dead = self._kill()
        survivors = self._crowd.at(self._nodes.up)
        self._put(survivors, self._plan.messages - first_half)
        self._result.survivors_agree_s = self._agree(survivors, lambda: _union(survivors))
        self._judge(directory, survivors, _union(survivors))
        self._revive(dead)
        self._put(self._crowd.at(dead), self._plan.messages - first_half)
        self._result.all_agree_s = self._agree(self._crowd.all, lambda: _confirmed(self._crowd.all))
        self._judge(directory, self._crowd.all, _confirmed(self._crowd.all))
        self._result.put = len(_confirmed(self._crowd.all))
        self._result.delivered = sum(len(each.delivered) for each in self._crowd.all)
        self._count_packets()

    def _assemble(self) -> None:
        """Start all nodes, have one application at each subscribe, and wait until the overlay is whole."""
        began = time.monotonic()
        self._nodes.start()
        for each in self._crowd.all:
            each.subscribe()
        self._result.join_s = round(time.monotonic() - began, 2)
        self._say(f"{self._plan.nodes} nodes have joined")
        self._settle()
        self._result.converge_s = round(time.monotonic() - began, 2)

    def _settle(self) -> None:
        """Wait until the overlay of those that run is symmetric and connected, and remember it: the last one is shown."""
        if not wait_until(self._is_whole, PATIENCE_S):
            self._add(judge_overlay(self._nodes.views(), MESH_ACTIVE))
        names = {node.mesh: node.name for node in self._nodes}
        self._result.overlay = {names[address]: [names[each] for each in view] for address, view in self._nodes.views().items()}

    def _is_whole(self) -> bool:
        views = self._nodes.views()
        is_whole = len(views) == len(self._nodes.up) and not judge_overlay(views, MESH_ACTIVE)
        if not is_whole:
            time.sleep(_LOOK_S)
        return is_whole

    def _put(self, applications: Sequence[Application], count: int) -> None:
        """Everybody puts, in turn, and gets what is there meanwhile."""
        for _ in range(count):
            for each in applications:
                each.put()
            for each in applications:
                each.collect()
        self._say(f"{count} messages put at each of {len(applications)} nodes")

    def _kill(self) -> list[Node]:
        count = round(self._plan.failed * len(self._nodes))
        dead = self._chance.sample(self._nodes.all, count)
        for node in dead:
            self._crowd.all[node.number].note("crash", name=node.name)
        self._nodes.kill(dead)
        self._result.killed = count
        self._say(f"{count} of {len(self._nodes)} nodes killed")
        return dead

    def _revive(self, dead: Sequence[Node]) -> None:
        self._nodes.start(dead)
        self._settle()
        self._say(f"{len(dead)} nodes are back")

    def _agree(self, applications: Sequence[Application], wanted: Callable[[], set[str]]) -> float:
        """Collect until everybody has what is wanted; return how long that took."""
        began = time.monotonic()

        def is_so() -> bool:
            for each in applications:
                each.collect()
            required = wanted()
            return all(required <= each.delivered.keys() for each in applications)

        wait_until(is_so, PATIENCE_S)
        return round(time.monotonic() - began, 2)

    def _judge(self, directory: Path, applications: Sequence[Application], required: set[str]) -> None:
        for each in applications:
            each.collect()  # What comes twice may come late.
        wanted = {each.name: sorted(required) for each in applications}
        self._add(judge(merged(directory / "histories"), wanted))
        self._settle()

    def _add(self, witnesses: Witnesses) -> None:
        for law, texts in witnesses.items():
            known = self._result.violations.setdefault(law, [])
            known += [text for text in texts if text not in known]

    def _count_packets(self) -> None:
        kinds = {kind.__name__.lower() for kind in MeshPacket.__subclasses__()}
        total: Counter[str] = Counter()
        for node in self._nodes.up:
            status = node.status()
            counters = status.counters if status is not None else {}
            total.update({name.removeprefix("sent_"): number for name, number in counters.items() if name[5:] in kinds})
            total["spreads_heard"] += counters.get("spreads_heard", 0)
        self._result.packets = dict(sorted(total.items()))


def _union(applications: Sequence[Application]) -> set[str]:
    """Everything that any of them holds: was handed over there, or confirmed there."""
    return {message for each in applications for message in (*each.delivered, *each.confirmed)}


def _confirmed(applications: Sequence[Application]) -> set[str]:
    return {message for each in applications for message in each.confirmed}
