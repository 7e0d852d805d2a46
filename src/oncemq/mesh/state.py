# SPDX-License-Identifier: Apache-2.0
"""The durable state of a node, and the only function that changes it.

May not: change but through `apply`, live and in recovery alike; know anything that was not written down.
The idea: an origin's numbers are taken one after the other; a record that says otherwise is a bug of ours.
Next: node.py, which decides the records.
"""

from __future__ import annotations

from typing import assert_never

from oncemq.errors import invariant
from oncemq.mesh.packets import Origin
from oncemq.mesh.records import BaselineTaken, GivenUp, MeshRecord, StartedNode, Taken, TopicUnwanted, TopicWanted
from oncemq.mesh.vectors import Watermarks


class TopicFilter:
    """Which topics this node subscribes to. Others are stored and told on, but handed to nobody."""

    def __init__(self) -> None:
        self._topics: dict[str, None] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def want(self, topic: str) -> None:
        self._topics[topic] = None

    def unwant(self, topic: str) -> None:
        self._topics.pop(topic, None)

    def wanted_of(self, topics: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(topic for topic in topics if topic in self._topics)


class NodeState:
    def __init__(self) -> None:
        self.origin: Origin | None = None
        self.had = Watermarks()
        self.topics = TopicFilter()
        self.has_baseline = False
        self.given_up = 0
        """Messages that are lost for this node."""

    def apply(self, record: MeshRecord) -> None:
        match record:
            case Taken(origin=origin, number=number):
                self._advance(origin, number, number)
            case GivenUp(origin=origin, first=first, last=last):
                self._advance(origin, first, last)
                self.given_up += last - first + 1
            case StartedNode(origin=origin):
                self.origin = origin
            case BaselineTaken(entries=entries):
                self.has_baseline = True
                for entry in entries:
                    self.had.raise_to(entry.origin, max(entry.number, self.had[entry.origin]))
            case TopicWanted(topic=topic):
                self.topics.want(topic)
            case TopicUnwanted(topic=topic):
                self.topics.unwant(topic)
            case _:
                assert_never(record)

    def _advance(self, origin: Origin, first: int, last: int) -> None:
        invariant(first == self.had[origin] + 1, "a number out of its origin's order", origin=origin, number=first)
        self.had.raise_to(origin, last)
