# SPDX-License-Identifier: Apache-2.0
"""`oncemq mesh`: what concerns many nodes. `oncemq mesh simulate` runs thousands of them in this process.

May not: judge or measure: sim/mesh_*.py do.
The idea: a scenario is a pure function of (nodes, seed) that returns a row of figures; several seeds run on all cores and are
summed up as mean, p95 and worst, never as best. A small mesh that breaks a promise is named with the line that replays it.
Next: simulating.py for how rows are summed up, sim/mesh_scenarios.py and sim/mesh_paper.py for the scenarios.
"""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from oncemq.cli.mesh_local import local, trial
from oncemq.cli.mesh_status import status
from oncemq.cli.options import Json
from oncemq.cli.output import output_of

app = typer.Typer(no_args_is_help=True, help="Many nodes: look at a mesh, run one here, simulate one.")


class Scenario(enum.StrEnum):
    """What happens to the mesh."""

    PAPER = "paper"
    SPLIT = "split"
    STORM = "storm"
    CHURN = "churn"
    ENTROPY = "entropy"
    SMALL = "small"


Nodes = Annotated[int | None, typer.Option("--nodes", min=2, max=100_000, metavar="N", help="How many nodes.")]
Which = Annotated[Scenario, typer.Option("--scenario", help="What happens to them.")]
Seeds = Annotated[int | None, typer.Option("--seeds", min=1, metavar="N", help="How many seeds to run.")]
First = Annotated[int, typer.Option("--first", min=0, metavar="SEED", help="The first seed.")]
Bugs = Annotated[bool, typer.Option("--bugs", help="Plant each known bug in the mesh, and run small meshes until it is caught.")]


app.command("status")(status)
app.command("local")(local)
app.command("trial")(trial)


@app.callback()
def _group() -> None:
    """Many nodes."""


@app.command("simulate")
def simulate(
    context: typer.Context,
    scenario: Which = Scenario.SMALL,
    nodes: Nodes = None,
    seeds: Seeds = None,
    first: First = 0,
    bugs: Bugs = False,
    _json: Json = False,
) -> int:
    """Run the machines of the mesh, as shipped, in a seeded world, and measure or judge what they do.

    paper: join one by one, 50 cycles, measures, then 10 to 95 % fail (default 10,000 nodes, 1 seed).
    split: half and half until both have forgotten each other, healed (50 nodes, 20 seeds).
    storm: everybody joins through one contact at once (1,000 nodes, 20 seeds).
    churn: 0.5 % die and as many join in each cycle (1,000 nodes, 20 seeds).
    entropy: bytes to find out that nothing is missing, and to get what is (20 nodes, 1 seed).
    small: 2 to 12 nodes and every kind of fault, judged (200 seeds).

    oncemq mesh simulate --nodes 10000 --scenario paper --json

    oncemq mesh simulate --scenario split --seeds 20

    oncemq mesh simulate --scenario small --first 25 --seeds 1

    oncemq mesh simulate --bugs
    """
    from oncemq.cli import simulating

    output = output_of(context)
    if bugs:
        return simulating.run_bugs(output)
    if scenario is Scenario.SMALL:
        return simulating.run_small(output, first, seeds or 200)
    return simulating.run_scenario(output, scenario.value, nodes, first, seeds)
