# SPDX-License-Identifier: Apache-2.0
"""The experiments with processes: real nodes on this machine, through the commands and the client that everybody uses.

May not: reach into a node; signal a process it did not start.
The idea: `oncemq mesh local` starts a mesh and ends it, `oncemq mesh trial` kills a share of one and judges; what nodes count is
asked of each by its status. Measures have the names of the simulated ones, so that both are drawn in one figure.
Next: simulated.py for the same without processes.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import oncemq
from oncemq.errors import OnceMQError
from oncemq.lab.anchors import MEMBERSHIP_S
from oncemq.lab.simulated import PACKETS, RELIABILITY_PUTS, full_degree
from oncemq.lab.trials import Experiment, Kind, Observation, Trial, seen
from oncemq.sim.mesh_checkers import is_connected

if TYPE_CHECKING:
    from oncemq.core.packets import MeshStatusDone

TOPIC = "experiment"
PATIENCE_S = 180.0
"""How long a mesh on a busy machine may take for anything."""
_LOOK_S = 0.25
_COMMAND = (sys.executable, "-m", "oncemq", "mesh")


def run(trial: Trial) -> Iterator[Observation]:
    """Run one trial; yield what is seen."""
    return _TRIALS[trial.kind](trial)


class Mesh:
    """A mesh that runs: where its nodes are, and what they say."""

    def __init__(self, addresses: list[str], started_s: float) -> None:
        self.addresses = addresses
        self.started_s = started_s
        """When the first process was started, on the monotonic clock."""

    def statuses(self) -> list[MeshStatusDone]:
        """What every node says of itself; those that do not answer are left out."""
        return [status for status in map(_status, self.addresses) if status is not None]

    def degree(self) -> float:
        """The mean number of neighbours, if the overlay is symmetric, connected and of members only; else 0."""
        statuses = self.statuses()
        views = {each.address: [other.address for other in each.neighbours] for each in statuses}
        is_symmetric = all(name in views.get(other, ()) for name, view in views.items() for other in view)
        is_whole = len(statuses) == len(self.addresses) and all(each.life == "member" for each in statuses)
        return sum(map(len, views.values())) / len(views) if is_whole and is_symmetric and is_connected(views) else 0.0

    def counters(self) -> Counter[str]:
        """What all nodes counted, together."""
        total: Counter[str] = Counter()
        for status in self.statuses():
            total.update(status.counters)
        return total


def _status(address: str) -> MeshStatusDone | None:
    try:
        with oncemq.connect(address, offline=True) as client:
            return client.admin.mesh_status()
    except OnceMQError:
        return None


@contextmanager
def running(nodes: int) -> Iterator[Mesh]:
    """A mesh of so many processes, for as long as the block takes."""
    with tempfile.TemporaryDirectory(prefix="oncemq-experiment-") as place:
        told = Path(place) / "told.jsonl"
        started_s = time.monotonic()
        with told.open("wb") as target:
            command = [*_COMMAND, "local", "--nodes", str(nodes), "--directory", f"{place}/nodes", "--json"]
            process = subprocess.Popen(command, stdout=target)  # noqa: S603 - our own command
        try:
            _until(lambda: b"\n" in told.read_bytes() or process.poll() is not None)
            first = json.loads(told.read_text().splitlines()[0])
            yield Mesh([each["address"] for each in first["nodes"]], started_s)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _until(is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    """Look again and again; False when patience is over."""
    deadline = time.monotonic() + patience_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


# --- the experiments --------------------------------------------------------------------------------------


def convergence(trial: Trial) -> Iterator[Observation]:
    """Seconds from the moment that all processes serve until the overlay is whole and full. They are started four at a time."""
    with running(trial.nodes) as mesh:
        began, full = time.monotonic(), full_degree(trial.nodes)
        found = _until(lambda: mesh.degree() > 0)
        yield seen(trial, Experiment.CONVERGENCE, "seconds_to_one_island_one_by_one", trial.nodes, _elapsed(began, found))
        found = _until(lambda: mesh.degree() >= full)
        yield seen(trial, Experiment.CONVERGENCE, "seconds_to_full_views_one_by_one", trial.nodes, _elapsed(began, found))


def _elapsed(began: float, is_so: bool) -> float | None:
    return round(time.monotonic() - began, 2) if is_so else None


def membership(trial: Trial) -> Iterator[Observation]:
    """Packets of each kind in the first minute; nothing is seen on a machine that takes longer to start the processes."""
    with running(trial.nodes) as mesh:
        is_in_time = time.monotonic() - mesh.started_s < MEMBERSHIP_S
        _until(lambda: time.monotonic() - mesh.started_s >= MEMBERSHIP_S)
        counters = mesh.counters()
    for kind, name in PACKETS.items():
        value = counters[f"sent_{kind.lower()}"] if is_in_time else None
        yield seen(trial, Experiment.MEMBERSHIP, f"packets_{name}", trial.nodes, value)


def received(trial: Trial) -> Iterator[Observation]:
    """Messages that nodes hear of, for so many put at each, on an overlay that is full."""
    with running(trial.nodes) as mesh:
        _until(lambda: mesh.degree() >= full_degree(trial.nodes))
        total = 0
        for per_node in trial.sweep:
            before, degree = mesh.counters(), mesh.degree()
            _put(mesh, per_node)
            total += per_node * trial.nodes
            _until(lambda total=total: _is_level(mesh, total))  # type: ignore[misc]
            heard = mesh.counters()["spreads_heard"] - before["spreads_heard"]
            exact = (degree * trial.nodes - (trial.nodes - 1)) * per_node * trial.nodes
            yield seen(trial, Experiment.RECEIVED, "receptions", per_node, heard)
            yield seen(trial, Experiment.RECEIVED, "receptions_exact", per_node, round(exact))
            yield seen(trial, Experiment.RECEIVED, "overlay_changed", per_node, float(mesh.degree() != degree))


def _put(mesh: Mesh, per_node: int) -> None:
    """One message after the other at every node: what is put alone is a message of the mesh alone."""
    clients = [oncemq.connect(address) for address in mesh.addresses]
    try:
        for number in range(per_node):
            for client in clients:
                client.put(TOPIC, b"%d" % number)
    finally:
        for client in clients:
            client.close()


def _is_level(mesh: Mesh, total: int) -> bool:
    statuses = mesh.statuses()
    had = [sum(origin.had for origin in each.origins) for each in statuses]
    return len(had) == len(mesh.addresses) and set(had) == {total}


def kills(trial: Trial) -> Iterator[Observation]:
    """A share of all nodes is killed with -9 half way; `oncemq mesh trial` judges survivors, and everybody once all are back."""
    for percent in trial.sweep:
        row = _mesh_trial(trial, percent)
        is_agreed = "P3 agreement" not in row["violations"]
        yield seen(trial, Experiment.RELIABILITY, "survivors_have", percent, float(is_agreed))
        yield seen(trial, Experiment.RELIABILITY, "seconds_to_level", percent, row["survivors_agree_s"])
        yield seen(trial, Experiment.RELIABILITY, "all_have", percent, row["delivered"] / (row["put"] * trial.nodes))
        yield seen(trial, Experiment.RELIABILITY, "seconds_to_level_again", percent, row["all_agree_s"])
        yield seen(trial, Experiment.RELIABILITY, "violations", percent, len(row["violations"]))


def _mesh_trial(trial: Trial, percent: int) -> dict[str, Any]:
    options = {"nodes": trial.nodes, "messages": RELIABILITY_PUTS, "failed": percent, "seed": trial.seed + 1}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    ended = subprocess.run([*_COMMAND, "trial", *words, "--json"], stdout=subprocess.PIPE, check=False)  # noqa: S603 - our own
    row: dict[str, Any] = json.loads(ended.stdout)["trials"][0]
    return row


_TRIALS: dict[Kind, Callable[[Trial], Iterator[Observation]]] = {
    Kind.RECEIVED: received,
    Kind.CONVERGENCE: convergence,
    Kind.MEMBERSHIP: membership,
    Kind.KILLS: kills,
}
