# SPDX-License-Identifier: Apache-2.0
"""How `oncemq mesh simulate` runs scenarios over seeds, sums them up, and says what came of it.

May not: leave a bad seed out: worst is worst, and a broken promise is an exit code.
Next: mesh.py for the options, proofs.py for work on all cores.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from oncemq.cli.exits import Exit
from oncemq.cli.output import Output
from oncemq.cli.proofs import in_parallel

DEFAULTS = {"paper": (10_000, 1), "split": (50, 20), "storm": (1_000, 20), "churn": (1_000, 20), "entropy": (20, 1)}
"""Nodes and seeds of each scenario, where none are asked for."""
LOW_IS_WORSE = ("first_", "send_mean", "send_last", "told_first", "told_mean", "heartbeat_", "mean_degree", "reach")
"""Beginnings of figures whose smallest value is the worst one; of all others it is the largest."""
COLUMNS = (
    *("failed", "first_without_hold", "first_with_hold", "first_closed_form", "told_mean", "heartbeat_mean"),
    *("heartbeat_once_told", "send_mean"),
    *("paper_mean", "told_cycles", "send_cycles", "paper_cycles"),
    *("messages", "missed", "in_step_bytes", "in_step_bytes_as_ids", "recovery_bytes", "seconds"),
)
"""Of tables for people; JSON has all."""
Row = dict[str, Any]


def run_scenario(output: Output, name: str, nodes: int | None, first: int, seeds: int | None) -> int:
    """Run one scenario over its seeds, and say the figures."""
    nodes, seeds = nodes or DEFAULTS[name][0], seeds or DEFAULTS[name][1]
    started = time.monotonic()
    rows = list(_rows(output, name, nodes, first, seeds))
    told = {"scenario": name, "nodes": nodes, "seeds": seeds, "seconds": round(time.monotonic() - started, 1)}
    row = told | (rows[0] if seeds == 1 else summed_up(rows)) | told
    for seed, each in enumerate(rows, first):
        for law, witness in _broken(each):
            replay = f"oncemq mesh simulate --scenario {name} --nodes {nodes} --first {seed} --seeds 1"
            output.failure(law, f"{witness}  (replay: {replay})")
    _say(output, row)
    return Exit.FAILED if any(True for each in rows for _ in _broken(each)) else Exit.OK


def _rows(output: Output, name: str, nodes: int, first: int, seeds: int) -> Iterator[Row]:
    if seeds == 1:
        with _watched(output, name, _steps(name, nodes)) as advance:
            yield run_one(name, nodes, first, advance)
        return
    with _watched(output, name, seeds) as advance:
        for row in in_parallel(partial(_run_seed, name, nodes), range(first, first + seeds)):
            advance(name, 1)
            yield row


def run_one(name: str, nodes: int, seed: int, advance: Callable[[str, int], None]) -> Row:
    from oncemq.sim import mesh_paper, mesh_scenarios

    scenarios: dict[str, Callable[[int, int, mesh_paper.Progress], Row]] = {
        "paper": mesh_paper.run,
        "split": mesh_scenarios.split,
        "storm": mesh_scenarios.storm,
        "churn": mesh_scenarios.churn,
        "entropy": mesh_scenarios.entropy,
    }
    return scenarios[name](nodes, seed, advance)


def _run_seed(name: str, nodes: int, seed: int) -> Row:
    return run_one(name, nodes, seed, lambda _what, _steps: None)


def _steps(name: str, nodes: int) -> int:
    from oncemq.sim import mesh_paper, mesh_scenarios

    churned = mesh_scenarios.CHURN_CYCLES
    recovered = len(mesh_scenarios.CACHES) * len(mesh_scenarios.MISSED)
    return {"paper": mesh_paper.steps_of(nodes), "churn": churned, "entropy": recovered}.get(name, 1)


@contextmanager
def _watched(output: Output, label: str, total: int) -> Iterator[Callable[[str, int], None]]:
    """Show how far it is. Drawn by this thread only: a scenario may fork."""
    from rich.progress import Progress

    console = output.console(stderr=True)
    with Progress(console=console, auto_refresh=False, transient=True, disable=not output.has_watcher) as progress:
        task = progress.add_task(label, total=total)

        def advance(what: str, steps: int) -> None:
            progress.update(task, advance=steps, description=what, refresh=True)

        yield advance


# --- what came of it ----------------------------------------------------------------------------------------


def _broken(row: Row) -> Iterator[tuple[str, str]]:
    """Promises that a run broke: what the judges say, and what must hold of every overlay."""
    for law, witnesses in row.get("violations", {}).items():
        yield law, witnesses[0]
    for inner in row.get("rows", ()):
        yield from _broken(inner)
    for measured in (row, row.get("overlay", {})):
        for name in ("symmetric", "connected"):
            if measured.get(name) is False:
                yield name, f"the overlay is not {name}"
    if row.get("flood_receptions") != row.get("flood_expected"):
        yield "flood_receptions", f"a flood cost {row['flood_receptions']} receptions, not {row['flood_expected']}"
    for name, value in row.items():
        if name.startswith("seconds_") and value is None:
            yield name, f"never, within the time a run has: {name}"


def summed_up(rows: Sequence[Row]) -> Row:
    """Rows of several seeds as one: the mean of every figure, and beside it mean, p95 and worst."""
    summary: Row = {}
    spread: dict[str, Row] = {}
    for key, sample in rows[0].items():
        values = [row[key] for row in rows]
        if key == "violations":
            summary[key] = sum(map(bool, values))
        elif isinstance(sample, bool):
            summary[key] = all(values)
        elif isinstance(sample, list) and sample and isinstance(sample[0], dict):
            summary[key] = [summed_up([value[i] for value in values]) for i in range(len(sample))]
        elif isinstance(sample, Mapping):
            summary[key] = summed_up(values) if key == "overlay" else sample
        elif any(isinstance(value, int | float) for value in values):
            spread[key] = _spread(key, values)
            summary[key] = spread[key]["mean"]
        else:
            summary[key] = sample
    return summary | ({"spread": spread} if spread else {})


def _spread(key: str, values: Sequence[float | None]) -> Row:
    """None stands for never: it is worse than anything, and is counted, not averaged."""
    known = sorted((value for value in values if value is not None), reverse=key.startswith(LOW_IS_WORSE))
    never = len(values) - len(known)
    if not known:
        return {"mean": None, "p95": None, "worst": None, "never": never}
    row: Row = {
        "mean": round(sum(known) / len(known), 5),
        "p95": known[min(len(known) - 1, int(0.95 * len(known)))],
        "worst": known[-1] if not never else None,
    }
    return row | ({"never": never} if never else {})


def _say(output: Output, row: Row) -> None:
    """All of it as JSON; for people the figures, and below them a table where there is one."""
    if output.is_json:
        output.card(row)
        return
    tables = [key for key in ("failures", "rows") if key in row]
    output.card({key: _readable(value) for key, value in row.items() if key not in tables})
    for key in tables:
        output.rows(key, [{name: each[name] for name in COLUMNS if name in each} for each in row[key]], empty="")


def _readable(value: object) -> object:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_readable(each)}" for key, each in value.items()) or "none"
    return value


# --- small meshes with faults -------------------------------------------------------------------------------


def run_small(output: Output, first: int, seeds: int) -> int:
    """Run small meshes on all cores; every tenth seed runs again here, and must be the same to the byte."""
    from oncemq.sim.mesh_swarm import run_seed

    started = time.monotonic()
    names = ("seeds", "messages", "faults", "packets", "given_up", "violations", "replay_mismatches")
    totals: Counter[str] = Counter(dict.fromkeys(names, 0))
    slowest_ms = 0
    with _watched(output, "small meshes", seeds) as advance:
        for outcome in in_parallel(run_seed, range(first, first + seeds)):
            advance("small meshes", 1)
            totals.update(seeds=1, messages=outcome.messages, faults=outcome.faults, packets=outcome.packets)
            totals.update(given_up=outcome.given_up, violations=bool(outcome.violations))
            slowest_ms = max(slowest_ms, outcome.drain_ms)
            if outcome.seed % 10 == 0 and run_seed(outcome.seed).digest != outcome.digest:
                totals["replay_mismatches"] += 1
                output.failure("replay_mismatch", f"two runs of seed {outcome.seed} differ")
            for law, witnesses in outcome.violations.items():
                replay = f"oncemq mesh simulate --scenario small --first {outcome.seed} --seeds 1"
                output.failure(law, f"{witnesses[0]}  (replay: {replay})")
    seconds = round(time.monotonic() - started, 1)
    output.card({"scenario": "small"} | dict(totals) | {"longest_recovery_seconds": slowest_ms / 1_000, "seconds": seconds})
    return Exit.FAILED if totals["violations"] or totals["replay_mismatches"] else Exit.OK


def run_bugs(output: Output) -> int:
    """Plant one bug after the other and run small meshes until the judges see it."""
    from oncemq.sim.mesh_bugs import MESH_BUGS, hunt

    finds = []
    for find in in_parallel(hunt, list(MESH_BUGS)):
        finds.append(find)
        output.note(f"{find.name:45} {find.seconds:6.1f} s  {find.law if find.is_caught else 'MISSED'}")
    missed = [find.name for find in finds if not find.is_caught]
    bugs = [{"name": find.name, "seconds": find.seconds, "seed": find.seed, "law": find.law} for find in finds]
    row = {"caught": len(finds) - len(missed), "total": len(finds), "missed": missed, "bugs": bugs}
    output.result(row, f"{len(finds) - len(missed)} of {len(finds)} bugs caught")
    return Exit.FAILED if missed else Exit.OK
