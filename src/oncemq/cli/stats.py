# SPDX-License-Identifier: Apache-2.0
"""`oncemq stats`: the numbers of a running broker.

May not: change what it measures: it opens no session.
Next: core/broker.py, `statistics`.
"""

from __future__ import annotations

import typer

from oncemq.cli.connecting import asking
from oncemq.cli.options import DEFAULT_ADDRESS, Address, Json
from oncemq.cli.output import output_of


def stats(context: typer.Context, address: Address = DEFAULT_ADDRESS, _json: Json = False) -> None:
    """Show what the broker holds, and what it has done since it was started (the lines that begin with "count").

    oncemq stats
    oncemq stats --json
    """
    output = output_of(context)
    with asking(output, address) as client:
        found = client.admin.stats()
    output.card({"log_id": found.log_id.hex(), "start_id": found.start_id.hex()} | dict(sorted(found.values.items())))
