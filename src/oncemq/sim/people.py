# SPDX-License-Identifier: Apache-2.0
"""Who lives in a world: one actor for everybody that its plan names.

May not: decide how many there are.
Next: sim/plan.py for the numbers; each kind of people has a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from oncemq.client.client import Client
from oncemq.sim.actors import Actor, Publisher, Subscriber, Wanderer
from oncemq.sim.callers import Caller
from oncemq.sim.history import Event, History
from oncemq.sim.ledger import Ledger
from oncemq.sim.listeners import Listening
from oncemq.sim.plan import Plan
from oncemq.sim.receivers import Receiver
from oncemq.sim.relay import RELAYED, Relay
from oncemq.sim.sleepers import Sleeper
from oncemq.sim.stagers import Stager
from oncemq.sim.world import World

KEPT = "kept"
"""A topic that nobody subscribes to: what it holds, it holds because it was told to keep it."""
KEPT_BYTES, KEPT_MESSAGES_MAX, KEPT_BATCH_MAX = 500, 100, 8
"""So large are its messages, and so many, that they reach over several segments."""
CALLS_BATCH_MAX = 8
"""So many puts lie around a call."""
Place = tuple[World, History, str, Random]
"""What every actor needs: its world, where to write down what it sees, its name, and a stream of randomness of its own."""


def create_topics(plan: Plan, client: Client, step_bytes: int) -> Iterator[Event]:
    """Create the topics of a world, and say how long each keeps what, and how much of it may go at once.

    Nobody reads what is relayed before the end, so it is kept.
    """
    terms = {topic: (plan.retain, "" if topic in plan.unlimited else plan.limit) for topic in plan.topics}
    if plan.relays:
        terms[RELAYED] = "forever", ""
    if plan.keepers:
        terms[KEPT] = plan.kept_retain, plan.kept_limit
    for topic, (retain, limit) in terms.items():
        info = client.admin.create_topic(topic, retain=retain, limit=limit)
        yield {"topic_id": str(info.topic_id), "name": topic, "retain": retain, "limit": limit, "step_bytes": step_bytes}


def people_of(plan: Plan, place: Callable[[str], Place], random: Random) -> Iterator[Actor]:
    """Everybody, in the order in which they begin to live."""
    topics, batch_max = list(plan.topics), plan.batch_max
    for number in range(plan.subscribers):
        chosen = topics if number == 0 else random.sample(topics, random.randrange(1, len(topics) + 1))
        yield Subscriber(*place(f"sub{number}"), topics=chosen, batch_max=batch_max)
    for number in range(plan.publishers):
        yield Publisher(*place(f"pub{number}"), topics=topics, count=plan.messages, batch_max=batch_max)
    for number in range(plan.wanderers):
        yield Wanderer(*place(f"wan{number}"), rounds=6, batch_max=batch_max)
    for number in range(plan.stagers):
        at = place(f"spark{number}")
        batches, may_go_back = at[3].randrange(3, 12), "broker_set_back" not in plan.later
        yield Stager(*at, topics=topics, batches=batches, batch_max=batch_max, may_go_back=may_go_back)
    for number in range(plan.sleepers):
        yield Sleeper(*place(f"sleeper{number}"), topics=topics[-1:], batch_max=batch_max)
    for number in range(plan.listeners):
        yield Listening(*place(f"liv{number}"), topics=topics, batch_max=batch_max)
    for number in range(plan.relays):
        yield Relay(*place(f"relay{number}"), topic=topics[0], batch_max=batch_max)
    for number in range(plan.ledgers):
        yield Ledger(*place(f"ledger{number}"), topic=topics[0], batch_max=batch_max)
    for number in range(plan.receivers):
        yield Receiver(*place(f"rec{number}"), topic=topics[-1], batch_max=batch_max)
    for number in range(plan.keepers):
        count, most = min(plan.messages, KEPT_MESSAGES_MAX), min(batch_max, KEPT_BATCH_MAX)
        yield Publisher(*place(f"keep{number}"), topics=[KEPT], count=count, batch_max=most, padding_bytes=KEPT_BYTES)
    for number in range(plan.callers):
        yield Caller(*place(f"call{number}"), topic=topics[0], rounds=4, batch_max=min(batch_max, CALLS_BATCH_MAX))
