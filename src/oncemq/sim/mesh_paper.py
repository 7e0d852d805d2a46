# SPDX-License-Identifier: Apache-2.0
"""The experiments of the HyParView and Plumtree papers, with their values and closed forms beside ours.

May not: tune anything: settings are the shipped defaults, the set-up is the papers'.
The idea: nodes join one by one through one contact, without cycles in between; 50 cycles; measures; then a share of all nodes
fails at once, and messages are sent before the next cycle. Who finds the dead decides what is seen: `send` is a flood that hits
them (the papers' only detector), `told` is every survivor knowing before the first message, `heartbeats` a tenth at a time.
Each experiment runs in a forked copy of the overlay: copying ten thousand machines would cost more than the experiment.
Next: sim/mesh_graph.py for measures, cli/mesh.py for the command.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from oncemq.mesh.packets import Address
from oncemq.sim.mesh_checkers import reached_from
from oncemq.sim.mesh_flood import Flooding
from oncemq.sim.mesh_graph import (
    giant_share,
    knowledge_share,
    measure,
    random_clustering,
    random_mean_path,
    sizes_by_node,
)
from oncemq.sim.mesh_overlay import Overlay, name_of

FAILED_PERCENT = (10, 25, 50, 75, 80, 90, 95)
MESSAGES = 100
CYCLES = 50
HEAL_CYCLES_MAX = 20
HEAL_SENDERS = 10
PAPER = {
    "clustering": 0.00092,
    "mean_path": 6.38542,
    "max_hops": 9.0,
    "mean_degree": 5.0,
    "receptions": 39_984,
    "source": "HyParView, DSN 2007, table 1; Plumtree, SRDS 2007, table 1 (10,000 nodes)",
}
PAPER_MEAN_REACH = {95: 0.90}
"""HyParView 5.2: "almost no visible effect" below 90 %, "in the order of 90 %" at 95 %."""
PAPER_CYCLES = {10: "1-2", 25: "1-2", 50: "1-2", 75: "1-2", 90: "4"}

Progress = Callable[[str, int], None]
"""Called with what is going on and by how much it advanced."""


def nobody(_what: str, _steps: int) -> None:
    """Progress that nobody watches."""


def steps_of(nodes: int, levels: int = len(FAILED_PERCENT)) -> int:
    """How much there is to do: nodes that join, node-cycles, and four experiments per level worth ten cycles each."""
    return nodes + CYCLES * nodes + levels * 4 * 10 * nodes


def build(nodes: int, seed: int, advance: Progress = nobody, cycles: int = CYCLES) -> Overlay:
    """Let nodes join one by one through one contact, and shuffle."""
    overlay = Overlay(seed)
    overlay.add(name_of(0))
    for index in range(1, nodes):
        overlay.add(name_of(index), (name_of(0),))
        overlay.settle()
        if index % 100 == 0:
            advance("joining", 100)
    for _ in range(cycles):
        overlay.cycle()
        advance("shuffling", nodes)
    return overlay


def run(nodes: int, seed: int, advance: Progress = nobody, levels: tuple[int, ...] = FAILED_PERCENT) -> dict[str, Any]:
    """The whole of it, as one row of figures."""
    gc.disable()  # Machines are no garbage, and looking at millions of them again and again costs a fifth of the time.
    try:
        return _run(nodes, seed, advance, levels)
    finally:
        gc.enable()


def _run(nodes: int, seed: int, advance: Progress, levels: tuple[int, ...]) -> dict[str, Any]:
    overlay = build(nodes, seed, advance)
    row = measure(overlay.neighbours())
    row |= _flood_figures(overlay, row["links"])
    row["packets"] = dict(overlay.sent)
    row["closed_form"] = {
        "mean_path": round(random_mean_path(nodes, 5), 3),
        "clustering": round(random_clustering(nodes, 5), 6),
    }
    row["paper"] = PAPER
    row["failures"] = [_level(overlay, nodes, percent, advance) for percent in levels]
    return row


def _flood_figures(overlay: Overlay, links: int) -> dict[str, Any]:
    """One flood by the machines, beside what arrays say it must be."""
    source = name_of(0)
    flooded = Flooding(overlay, holds=True).run(source)
    return {
        "flood_receptions": flooded.receptions,
        "flood_expected": 2 * links - (len(overlay.nodes) - 1),
        "flood_reached": len(flooded.reached),
        "flood_reached_by_arrays": sizes_by_node(overlay.neighbours())[source],
        "flood_last_hop": max(flooded.reached.values()),
    }


# --- failures ---------------------------------------------------------------------------------------------


def _level(overlay: Overlay, nodes: int, percent: int, advance: Progress) -> dict[str, Any]:
    """All experiments at one share of failed nodes."""
    row: dict[str, Any] = {"failed": percent}
    for name, experiment in _EXPERIMENTS.items():
        row |= _in_a_copy(experiment, overlay, percent)
        advance(f"{percent} % failed: {name}", 10 * nodes)
    share = giant_share(percent / 100, 5)
    row["first_closed_form"] = round(share * share, 4)
    row["ceiling_closed_form"] = round(knowledge_share(percent / 100, 5 + 2 * 30), 5)
    row["paper_mean"] = PAPER_MEAN_REACH.get(percent, 1.0)
    row["paper_cycles"] = PAPER_CYCLES.get(percent)
    return row


def _in_a_copy(experiment: Callable[[Overlay, int], dict[str, Any]], overlay: Overlay, percent: int) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    copy = context.Process(target=_report, args=(there, experiment, overlay, percent))
    copy.start()
    there.close()
    try:
        result: dict[str, Any] = here.recv()
    finally:
        here.close()
        copy.join()
    return result


def _report(there: Connection, experiment: Callable[[Overlay, int], dict[str, Any]], overlay: Overlay, percent: int) -> None:
    there.send(experiment(overlay, percent))
    there.close()


def _fail(overlay: Overlay, percent: int) -> list[Address]:
    """Kill a share of all nodes at once, the same for every experiment of a seed; return who is left."""
    names = list(overlay.nodes)
    overlay.dice.seed(f"failed {percent}")
    overlay.kill(overlay.dice.sample(names, len(names) * percent // 100))
    return list(overlay.nodes)


def living_links(overlay: Overlay) -> dict[Address, list[Address]]:
    return {name: [each for each in node.active if each in overlay.nodes] for name, node in overlay.nodes.items()}


def tell_of_the_dead(overlay: Overlay, names: list[Address]) -> None:
    """These nodes learn which of their neighbours are dead, and mend their views."""
    for name in names:
        node = overlay.nodes[name]
        for dead in [each for each in node.active if each not in overlay.nodes]:
            if dead in node.active:
                overlay.tell(node, dead)
        overlay.settle()


def _reach(overlay: Overlay, senders: list[Address]) -> float:
    """Mean share of survivors that a message of each sender reaches over the links as they are."""
    sizes = sizes_by_node(living_links(overlay))
    return sum(sizes[sender] for sender in senders) / len(senders) / len(overlay.nodes)


def _first(overlay: Overlay, percent: int) -> dict[str, Any]:
    """The first message: lost in the holes, or held and handed to the replacements."""
    survivors = _fail(overlay, percent)
    senders = overlay.dice.choices(survivors, k=MESSAGES)
    row = {"first_without_hold": round(_reach(overlay, senders), 4)}
    flooded = Flooding(overlay, holds=True).run(senders[0])
    return row | {"first_with_hold": round(len(flooded.reached) / len(survivors), 4)}


def _send_only(overlay: Overlay, percent: int) -> dict[str, Any]:
    """A flood finds the dead neighbours of whomever it reaches; nobody else does."""
    survivors = _fail(overlay, percent)
    reach = [_send(overlay, overlay.dice.choice(survivors)) for _ in range(MESSAGES)]
    cycles = _heal(overlay, survivors, lambda sender: _send(overlay, sender))
    return {"send_mean": round(sum(reach) / len(reach), 4), "send_last": round(reach[-1], 4), "send_cycles": cycles}


def _send(overlay: Overlay, sender: Address) -> float:
    reached = reached_from(living_links(overlay), sender)
    tell_of_the_dead(overlay, sorted(reached))
    return len(reached) / len(overlay.nodes)


def _told(overlay: Overlay, percent: int) -> dict[str, Any]:
    """Every survivor knows before the first message."""
    survivors = _fail(overlay, percent)
    before = overlay.sent["Neighbour"]
    tell_of_the_dead(overlay, survivors)
    dials = (overlay.sent["Neighbour"] - before) / len(survivors)
    senders = overlay.dice.choices(survivors, k=MESSAGES)
    first = Flooding(overlay, holds=True).run(senders[0])
    row = {
        "told_first": round(len(first.reached) / len(survivors), 4),
        "told_mean": round(_reach(overlay, senders), 4),
        "told_asks_per_survivor": round(dials, 1),
    }
    return row | {"told_cycles": _heal(overlay, survivors, lambda sender: _reach(overlay, [sender]))}


def _heartbeats(overlay: Overlay, percent: int) -> dict[str, Any]:
    """A tenth of the survivors finds out with each of the first ten messages, as time-outs spread over a heartbeat do.

    `heartbeat_once_told` is the mean from the eleventh message on, when heartbeats have told everybody.
    """
    survivors = _fail(overlay, percent)
    order = overlay.dice.sample(survivors, len(survivors))
    reach = []
    for message in range(10):
        reach.append(_reach(overlay, [overlay.dice.choice(survivors)]))
        tell_of_the_dead(overlay, order[message::10])
    rest = _reach(overlay, overlay.dice.choices(survivors, k=MESSAGES - 10))  # Nothing changes any more.
    mean = (sum(reach) + rest * (MESSAGES - 10)) / MESSAGES
    return {"heartbeat_mean": round(mean, 4), "heartbeat_once_told": round(rest, 4)}


def _heal(overlay: Overlay, survivors: list[Address], send: Callable[[Address], float]) -> int | None:
    """Cycles until ten random senders reach everybody; None if that takes too long (HyParView 5.3)."""
    for cycle in range(HEAL_CYCLES_MAX + 1):
        reach = [send(overlay.dice.choice(survivors)) for _ in range(HEAL_SENDERS)]
        if min(reach) >= 1.0:
            return cycle
        overlay.cycle()
    return None


_EXPERIMENTS = {"first message": _first, "sending": _send_only, "told": _told, "heartbeats": _heartbeats}
