# SPDX-License-Identifier: Apache-2.0
"""The judges of a small mesh at the end of a run: agreement, order, subscriptions, and the overlay at rest (P1 to P5).

May not: trust a node: what is on the disks, and what the observer saw, is all they look at.
Next: sim/mesh_history.py for what is judged while it happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oncemq.mesh.packets import Address
from oncemq.mesh.records import BaselineTaken, GivenUp, Taken
from oncemq.sim.mesh_history import Key
from oncemq.sim.mesh_world import MeshWorld, SimNode


def judge(world: MeshWorld, *, may_lose: bool, active_max: int) -> dict[str, list[str]]:
    """Judge a run that was healed and drained; return what was broken, law by law."""
    up = world.running()
    stored = {node.address: _check_log(world, node) for node in up}
    _check_agreement(world, up, stored, may_lose=may_lose)
    _check_subscriptions(world, up, stored)
    _check_told(world, up)
    _check_overlay(world, up, active_max)
    return world.history.violations


def _check_log(world: MeshWorld, node: SimNode) -> dict[Key, Taken]:
    """P2 and P4 on the disk: every message once, each origin in order; gaps only where they were told."""
    stored: dict[Key, Taken] = {}
    next_number: dict[object, int] = {}
    for record in node.disk.records:
        match record:
            case Taken(origin=origin, number=number):
                if (origin, number) in stored:
                    world.history.violate("P2 at most once", f"{node.address} stored number {number} twice")
                if number != next_number.get(origin, 1):
                    world.history.violate(
                        "P4 order", f"{node.address} stored {number} where {next_number.get(origin, 1)} belongs"
                    )
                stored[origin, number] = record
                next_number[origin] = number + 1
            case GivenUp(origin=origin, last=last):
                next_number[origin] = last + 1
            case BaselineTaken(entries=entries):
                for entry in entries:
                    next_number[entry.origin] = max(entry.number + 1, next_number.get(entry.origin, 1))
            case _:
                pass
    return stored


def _excused(node: SimNode) -> dict[Key, None]:
    """Numbers that a node need not have: before its baseline, or given up and told."""
    excused: dict[Key, None] = {}
    for record in node.disk.records:
        if isinstance(record, BaselineTaken):
            excused.update(((entry.origin, number), None) for entry in record.entries for number in range(1, entry.number + 1))
        elif isinstance(record, GivenUp):
            excused.update(((record.origin, number), None) for number in range(record.first, record.last + 1))
    return excused


def _check_agreement(world: MeshWorld, up: list[SimNode], stored: dict[Address, dict[Key, Taken]], *, may_lose: bool) -> None:
    """P3: whatever one has, all have; and all that a publisher on an intact disk was confirmed."""
    history = world.history
    required = {key for messages in stored.values() for key in messages}
    if not may_lose:
        required |= set(history.confirmed)
    for node in up:
        given_up = [record for record in node.disk.records if isinstance(record, GivenUp)]
        if given_up and not may_lose:
            history.violate("P3 agreement", f"{node.address} gave up {given_up[0]} though nothing was ever lost")
        missing = sorted(required - set(stored[node.address]) - set(_excused(node)))
        if missing:
            history.violate("P3 agreement", f"{node.address} lacks {len(missing)} messages, first number {missing[0][1]}")


def _check_subscriptions(world: MeshWorld, up: list[SimNode], stored: dict[Address, dict[Key, Taken]]) -> None:
    """What was confirmed anywhere after a subscription was, and still exists, was stored for that subscription."""
    history = world.history
    exists = {key for messages in stored.values() for key in messages}
    for node in up:
        book, given_up = history.book(node.address), _given_up(node)
        for topic, since in book.subscribed.items():
            for key, confirmed in history.confirmed.items():
                if confirmed < since or key not in exists or topic not in history.offers[key].topics or key in given_up:
                    continue
                taken = stored[node.address].get(key)
                if taken is None or topic not in taken.wanted:
                    history.violate("R27 subscription", f"{node.address} skipped number {key[1]}, put after it subscribed")


def _check_told(world: MeshWorld, up: list[SimNode]) -> None:
    """G8: whoever gave something up has said so."""
    for node in up:
        untold = world.history.book(node.address).untold
        if untold:
            world.history.violate("G8 gap", f"{node.address} gave something up and told nobody: {next(iter(untold))}")


def _given_up(node: SimNode) -> set[Key]:
    return {
        (record.origin, number)
        for record in node.disk.records
        if isinstance(record, GivenUp)
        for number in range(record.first, record.last + 1)
    }


def _check_overlay(world: MeshWorld, up: list[SimNode], active_max: int) -> None:
    """P5: symmetric, nobody its own neighbour, within bounds, connected."""
    views = {node.address: list(node.machine.membership.active) for node in up if node.machine is not None}
    for address, view in views.items():
        others = [other for other in view if other == address or address not in views.get(other, ())]
        if others:
            world.history.violate("P5 overlay", f"{address} counts {others} as neighbours, who do not know")
        if len(view) > active_max:
            world.history.violate("P5 overlay", f"{address} has {len(view)} neighbours")
    if not is_connected(views):
        world.history.violate("P5 overlay", f"the overlay fell apart: {views}")


def reached_from(views: Mapping[Address, Sequence[Address]], start: Address) -> set[Address]:
    """Everybody that can be reached over links, the start included."""
    seen, edge = {start}, [start]
    while edge:
        for other in views.get(edge.pop(), ()):
            if other not in seen:
                seen.add(other)
                edge.append(other)
    return seen


def is_connected(views: Mapping[Address, Sequence[Address]]) -> bool:
    return not views or reached_from(views, next(iter(views))) >= set(views)
