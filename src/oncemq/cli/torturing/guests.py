# SPDX-License-Identifier: Apache-2.0
"""The clients of `oncemq chaos`: each subscribes, leaves, puts, gets and listens as it likes, and falls over now and then.

May not: know what the product promises. They use the public client and write down its answers, nothing more.
The idea: as the subscribers and publishers of a torture, in one process. Every subscription is a lane of its own in the history,
because who comes back after leaving begins anew. What a life did not get to write down, the next one sees at the broker.
Run as `python -m oncemq.cli.torturing.guests PART`, a Part as JSON.
Next: chaos.py for who lets them in, roles.py for what they are made of.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

import msgspec

from oncemq import Client, Gap, InDoubt, NoSuchTopic, NotSubscribed, connect
from oncemq.adapters.starter import end_with_starter
from oncemq.cli.torturing.roles import AWAY, BATCH_MAX, LOAD_OVER, MAY_END, Part, Publisher, Subscriber, flush_all
from oncemq.core.packets import SubscriptionInfo

FELL_OVER = 70
"""The exit code of a guest that failed on purpose."""
_FALL = 0.01
"""How likely it is to fall over in a turn."""
_TURN_S = 0.2


def names_of(run: str, kind: str, count: int) -> tuple[str, ...]:
    """Names that no other run uses: of topics, of guests."""
    return tuple(f"{run}-{kind}-{number}" for number in range(count))


def run_of(name: str) -> str:
    return name.rsplit("-", 2)[0]


def has_flushed(name: str) -> str:
    """The file that says that a guest puts nothing more."""
    return f"flushed-{name}"


class Guest(Subscriber):
    """Does what it likes until the load is over; then gets what is left."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self._mouth = Publisher(part)
        self._lanes: dict[str, str] = {}
        """What the history calls the subscriptions it has, by topic."""

    def live(self) -> None:
        client = self.connect()
        self._take_up(client)
        print("ready", flush=True)
        while not self.is_told(LOAD_OVER):
            self._turn(client)
        flush_all(client)
        (self.directory / has_flushed(self.part.name)).touch()
        while not (self.is_told(MAY_END) and self._is_drained(client)):
            self._consume(client)
        client.close()

    def _turn(self, client: Client) -> None:
        if self.random.random() < _FALL:
            os._exit(FELL_OVER)
        try:
            match self.random.randrange(12):
                case 0:
                    self._join(client, self.random.choice(self.part.topics))
                case 1:
                    self._leave(client)
                case 2 | 3 | 4:
                    self._mouth.act(client)
                case _:
                    self._consume(client)
        except AWAY:
            time.sleep(self.random.random() * _TURN_S)

    # --- subscriptions ---------------------------------------------------------------------------------

    def _lane(self, topic: str) -> str:
        return self._lanes[topic]

    def _take_up(self, client: Client) -> None:
        """Write down what the broker says this client subscribes to, and what it no longer does."""
        for row in client.admin.subscriptions():
            if row.client == client.id:
                self._note(row.info)
        known = {str(event["subscription"]): str(event["topic_id"]) for event in self.past if event["op"] == "subscribe"}
        for lane in known.keys() - self._lanes.values():
            self.recorder.note("ok", "unsubscribe", subscription=lane, topic_id=known[lane])

    def _note(self, info: SubscriptionInfo) -> None:
        self._ids[info.topic] = str(info.topic_id)
        self._lanes[info.topic] = f"{self.part.name}/{info.subscription_id}"
        self.recorder.note("ok", "subscribe", **self._where(info.topic), start=info.start)

    def _join(self, client: Client, topic: str) -> None:
        if topic not in self._lanes:
            self._note(client.subscribe(topic, self.random.choice(["new", "earliest"])))
            self._listener = None

    def _leave(self, client: Client) -> None:
        if not self._lanes:
            return
        topic = self.random.choice(sorted(self._lanes))
        with suppress(NoSuchTopic, NotSubscribed):  # Then an earlier try did it, whose answer was lost.
            client.unsubscribe(topic)
        self.recorder.note("ok", "unsubscribe", **self._where(topic))
        del self._lanes[topic]
        self._listener = None

    # --- messages --------------------------------------------------------------------------------------

    def _consume(self, client: Client) -> None:
        """Get or listen for a moment."""
        if not self._lanes:
            time.sleep(self.random.random() * _TURN_S)
            return
        try:
            match self.random.randrange(3):
                case 0:
                    self._deliver([client.get(timeout=_TURN_S)])
                case 1:
                    topic = self.random.choice(sorted(self._lanes))
                    self._deliver([*client.get_many(topic, self.random.randrange(1, BATCH_MAX), timeout=_TURN_S)])
                case _:
                    self._hear(client)
        except (InDoubt, Gap, *AWAY) as told:
            self._take(client, told)

    def _topics(self) -> tuple[str, ...]:
        return tuple(self._lanes)


def sweep(part: Part) -> None:
    """Take away what the run has left at a broker that was there before."""
    with connect(part.address) as client:
        for topic in part.topics:
            with suppress(NoSuchTopic):
                client.admin.delete_topic(topic)
        for row in client.admin.clients():
            if row.client.startswith(run_of(part.topics[0])):
                client.admin.forget_client(row.client)


def main() -> None:
    end_with_starter()
    part = msgspec.json.decode(sys.argv[1], type=Part)
    if part.role == "sweep":
        sweep(part)
    else:
        Guest(part).live()


if __name__ == "__main__":
    main()
