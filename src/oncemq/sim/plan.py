# SPDX-License-Identifier: Apache-2.0
"""What a seed draws before anything happens: who lives in its world, which faults are on, how often.

May not: use any randomness but the named streams it is handed.
The idea: every fault class is on or off with even odds, at a rate drawn for this seed: a swarm of configurations finds more than
one average world. Whatever came later draws from a stream of its own, so that older draws stay what they were.
Next: sim/people.py for those who live there, sim/swarm.py for what happens to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

TOPICS = ("orders", "payments", "events")
FAULT_CLASSES = (
    "broker_kill",
    "broker_power_cut",
    "two_stage_crash",
    "power_cut_in_sync",
    "failed_sync",
    "client_kill",
    "client_os_crash",
    "loss",
    "repeat",
    "late",
    "partition",
    "crash_point",
    "takeover",
    "disk_full",
    "clock_jump",
)
LATER_CLASSES = {
    "broker_set_back": 0.2,
    "client_set_back": 0.35,
    "client_cloned": 0.2,
    "one_way_partition": 0.2,
    "clean_stop": 0.2,
    "bit_rot": 0.2,
    "database_set_back": 0.2,
}
"""Faults that are seldom on, and how likely each is."""
LINE_CLASSES = ("loss", "repeat", "late")
"""Faults of the line happen to packets all the time, not at an instant."""
BULK = 100
"""Worlds whose batches may be larger than this have many messages."""
KEEPING = 0.25
"""How many worlds have a topic that nobody subscribes to, and somebody who puts there."""
MIXED = 0.5
"""How many worlds with a limit have topics without one as well."""
AGED = 0.2
"""How many worlds have a limit by age, in which clocks do not jump: ages say nothing where they do."""
CALLING = 0.25
"""How many worlds have somebody who puts strictly where nobody listens, and is refused."""
SPARSE = 0.25
"""How many worlds have somebody who is stuck, and small segments: so small that the cleaner finds something to do."""


@dataclass(slots=True)
class Plan:
    """The configuration of one seed."""

    publishers: int
    subscribers: int
    topics: tuple[str, ...]
    messages: int
    classes: tuple[str, ...]
    faults: int
    span_ms: int
    retain: str
    limit: str
    batch_max: int
    wanderers: int
    sync_us_max: int
    downtime_us_max: int
    rates: dict[str, float] = field(default_factory=dict)
    later: tuple[str, ...] = ()
    stagers: int = 0
    sleepers: int = 0
    listeners: int = 0
    relays: int = 0
    ledgers: int = 0
    receivers: int = 0
    keepers: int = 0
    callers: int = 0
    kept_retain: str = "forever"
    kept_limit: str = ""
    unlimited: tuple[str, ...] = ()
    """Topics that the limit is not for."""
    backlog_max: int = 1_000


def draw_plan(random: Random) -> Plan:
    """Draw a world. Rates follow VOPR's ranges; sizes are small so that many worlds fit into a minute."""
    classes = tuple(name for name in FAULT_CLASSES if random.random() < 0.5)
    batch_max = random.choice([4, 8, 300])
    return Plan(
        publishers=random.randrange(1, 4),
        subscribers=random.randrange(1, 4),
        topics=TOPICS[: random.randrange(1, len(TOPICS) + 1)],
        messages=random.randrange(10, 80) if batch_max < BULK else random.randrange(500, 2_000),
        classes=classes,
        faults=random.randrange(0, 12) if classes else 0,
        span_ms=random.randrange(500, 20_000),
        retain=random.choice(["forever", ""]),
        limit=random.choice(["", "", "", "size:20000"]),
        batch_max=batch_max,
        wanderers=random.randrange(0, 2),
        sync_us_max=random.choice([0, 300, 5_000]),
        downtime_us_max=random.choice([400_000, 400_000, 20_000_000]),
        rates={name: random.random() * 0.1 for name in ("loss", "repeat", "late")},
    )


def draw_later(random: Random) -> tuple[str, ...]:
    """Draw which of the later faults strike, and how often.

    Broker and client are not both set back: two memories that agree on the same lie leave nobody who could tell. Nor does a
    broker's directory rot that is set back: what is put right would no longer be what had rotted.
    """
    classes = [name for name, odds in LATER_CLASSES.items() if random.random() < odds]
    if "broker_set_back" in classes:
        classes = [name for name in classes if name not in {"client_set_back", "client_cloned", "bit_rot"}]
    return tuple(name for name in classes for _ in range(random.randrange(1, 4)))


def draw_keeping(plan: Plan, random: Random) -> None:
    """Draw who puts what nobody subscribes to, and how long that is kept. Ages say nothing where clocks jump."""
    plan.keepers = int(random.random() < KEEPING)
    plan.kept_retain = random.choice(["forever", "forever", "size:10000", "size:30000", "age:1", "age:5"])
    plan.kept_limit = random.choice(["", "", "size:40000"])
    if "clock_jump" in plan.classes and plan.kept_retain.startswith("age"):
        plan.kept_retain = "forever"
    if plan.limit and random.random() < MIXED:
        plan.unlimited = plan.topics[: random.randrange(1, len(plan.topics) + 1)]


def draw_ages(plan: Plan, random: Random) -> None:
    """Draw limits by age, where there are none by size."""
    is_aged, limit, kept_limit = random.random() < AGED, random.choice(["age:1", "age:5"]), random.choice(["age:1", "age:5"])
    if is_aged and "clock_jump" not in plan.classes:
        plan.limit = plan.limit or limit
        plan.kept_limit = plan.kept_limit or kept_limit


def plan_of(random: Callable[[str], Random]) -> Plan:
    """Draw a whole world, each part of it from its own stream."""
    plan = draw_plan(random("plan"))
    plan.later = draw_later(random("plan/later"))
    plan.stagers = int(random("plan/stagers").random() < 0.4)
    plan.sleepers = int(random("plan/sleepers").random() < SPARSE)
    if plan.sleepers:
        plan.retain = ""  # Else nothing would ever be dead, and nothing cleaned.
    live, once = random("plan/live"), random("plan/once")
    plan.listeners = live.randrange(3)
    plan.backlog_max = live.choice([1, 3, 1_000])
    plan.relays, plan.ledgers = int(once.random() < 0.5), int(once.random() < 0.5)
    plan.receivers = int(once.random() < 0.5 and plan.batch_max < BULK)  # One message and one sync at a time: not in bulk.
    draw_keeping(plan, random("plan/keeping"))
    draw_ages(plan, random("plan/ages"))
    plan.callers = int(random("plan/callers").random() < CALLING)
    return plan
