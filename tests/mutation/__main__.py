# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.mutation`: the mutation score of a package, by the tests of some folders."""

from __future__ import annotations

import argparse
import json
import sys

import pytest

from tests.mutation.runner import MutationRun


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--package", default="oncemq.core", help="whose functions are broken")
    parser.add_argument("--mutants", type=int, default=600, help="how many, drawn from all there are")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--jobs", type=int, default=2, help="children at a time")
    parser.add_argument("--score-min", type=float, default=0.0, help="fail below this percentage")
    parser.add_argument("tests", nargs="*", default=["tests/core", "tests/holes"], help="the tests that should notice")
    options = parser.parse_args()
    run = MutationRun(options.package, options.mutants, options.seed, options.jobs)
    pytest.main(["-q", "-m", "not real", "-p", "no:cacheprovider", *options.tests], plugins=[run])
    killed = len(run.chosen) - len(run.survivors)
    score = round(100 * killed / len(run.chosen), 1)
    row = {"mutants": len(run.chosen), "of": run.total, "seed": options.seed, "killed": killed, "timeouts": run.timeouts}
    print(json.dumps(row | {"alive": len(run.survivors), "score": score}))
    return int(score < options.score_min)


if __name__ == "__main__":
    sys.exit(main())
