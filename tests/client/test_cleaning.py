# SPDX-License-Identifier: Apache-2.0
"""A real broker and a subscription that is stuck: its few messages are kept, the disk of the many others is not."""

from __future__ import annotations

from pathlib import Path

import oncemq
from oncemq.adapters.read_only_disk import ReadOnlyDisk
from oncemq.core.state import BrokerState
from oncemq.journal.verify import verify
from oncemq.limits import RESERVE_BYTES
from tests.cli.harness import wait_until

SEGMENT = 1 << 16
ROUNDS = 60


def _disk_bytes(client: oncemq.Client) -> int:
    """What segments take on the disk. The reserve is left out: it is larger than a hundred such segments."""
    return client.admin.stats().values["journal_bytes"] - RESERVE_BYTES


def test_a_stuck_subscription_does_not_pin_the_disk_of_the_busy_ones(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    living = ROUNDS * 1000
    with (
        oncemq.Broker(directory, segment_bytes=SEGMENT) as broker,
        oncemq.connect(broker.address, id="stuck", state=tmp_path / "stuck") as stuck,
        oncemq.connect(broker.address, id="busy", state=tmp_path / "busy") as busy,
        oncemq.connect(broker.address, id="shop", state=tmp_path / "shop") as shop,
    ):
        stuck.subscribe("audit")
        busy.subscribe("orders")
        for number in range(ROUNDS):
            shop.put_many("orders", [b"%d" % number + bytes(5_000) for _ in range(8)])
            shop.put("audit", b"%d" % number + bytes(800))
            while busy.get_many("orders", 100, timeout=0):
                pass
            busy.ack("orders")
        assert ROUNDS * 8 * 5_000 > 20 * SEGMENT
        wait_until(lambda: _disk_bytes(shop) <= 2 * living + 4 * SEGMENT, "sparse segments are emptied")
        values = shop.admin.stats().values
        assert values["journal_segments_cleaned"] > 0
        assert values["journal_bytes_moved"] >= values["journal_segments_cleaned"] * 800
    assert [finding for finding in verify(ReadOnlyDisk(directory), BrokerState()) if finding.problem] == []
    with (
        oncemq.Broker(directory, segment_bytes=SEGMENT) as broker,
        oncemq.connect(broker.address, id="stuck", state=tmp_path / "stuck") as stuck,
    ):
        got = [message for _ in range(ROUNDS) if (message := stuck.get("audit", timeout=5)) is not None]
        assert [message.offset for message in got] == list(range(ROUNDS))
        assert [int(message.value.rstrip(b"\0")) for message in got] == list(range(ROUNDS))
