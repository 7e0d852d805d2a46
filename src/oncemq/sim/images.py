# SPDX-License-Identifier: Apache-2.0
"""Crash images: at every step of a recorded run, every way a power cut could have left the disk, recovered and judged.

May not: judge by itself; subjects know what they promised. Nor count an image twice.
The idea, for each image:

    recover                                    everything promised by then is there, and nothing else
    kill -9, recover again                     the same
    one more durable thing, power cut, recover the same and that thing
    power cut in the middle of recovery        the same as if there had been none

A seed is one recorded run; `oncemq sim --images N` records runs until N different images were recovered.
Next: sim/tape.py for images, sim/subjects.py for who is recorded.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from random import Random

from oncemq.sim.subjects import SUBJECTS, Broken, Subject
from oncemq.sim.tape import Image, Mark, Platter, Step, Tape

ALL_UP_TO = 4096
"""Twelve pending sectors, each there or not: up to here all images of a point are taken, beyond it a sample."""
SAMPLE = 200
VIOLATIONS_MAX = 5
"""Per run: more would say the same again."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one seed gave: how many different images, and what was wrong with which."""

    seed: int
    subject: str
    points: int
    images: int
    violations: list[str]


def explore(seed: int, *, all_up_to: int = ALL_UP_TO, sample: int = SAMPLE, images_max: int | None = None) -> Recorded:
    """Record one run, then recover from every image of each of its points (of the first points, if there is a bound)."""
    name = list(SUBJECTS)[seed % len(SUBJECTS)]
    random = Random(f"{seed}/images")
    subject, tape = SUBJECTS[name](Random(f"{seed}/work")), Tape()
    subject.work(tape)
    count, violations = 0, []
    for point, promise, is_cache, image in _different(tape.steps, random, all_up_to, sample):
        count += 1
        broken = _judge(subject, image, promise, random, is_cache=is_cache)
        if broken:
            violations.append(f"{name}, step {point} of {len(tape.steps)}: {broken}")
        if len(violations) >= VIOLATIONS_MAX or (images_max is not None and count >= images_max):
            break
    return Recorded(seed, name, len(tape.steps) + 1, count, violations)


def _different(steps: list[Step], random: Random, all_up_to: int, sample: int) -> Iterator[tuple[int, int, bool, Image]]:
    """Yield point, promise, whether nothing is lost, and image; the same image under the same promise only once."""
    platter, promise = Platter({}), 0
    seen: set[int] = set()
    for point, step in enumerate([Mark(0), *steps]):
        platter.play(step)
        promise = step.promise if isinstance(step, Mark) else promise
        for index, image in enumerate(platter.images(random, all_up_to=all_up_to, sample=sample)):
            key = hash((promise, index == 0, tuple(image.items())))
            if key not in seen:
                seen.add(key)
                yield point, promise, index == 0, image


def _judge(subject: Subject, image: Image, promise: int, random: Random, *, is_cache: bool) -> str:
    """Say what is wrong with recovery from this image; nothing if all is well."""
    try:
        tape = Tape(image, boots=1 if is_cache else 2)
        found = subject.recover(tape)
        subject.judge(found, promise, is_cache=is_cache)
        recovery = len(tape.steps)
        _same(subject.recover(tape), found, "the second recovery")
        expected = subject.go_on()
        _same(subject.recover(_cut(tape, len(tape.steps), random)), expected, "recovery after one more thing and a power cut")
        _same(subject.recover(_cut(tape, random.randint(0, recovery), random)), found, "recovery after a recovery that was cut")
    except Broken as problem:
        return str(problem)
    except Exception as problem:  # Whatever recovery dies of is a finding.
        return f"{type(problem).__name__}: {problem}"
    return ""


def _same(found: Hashable, expected: Hashable, what: str) -> None:
    if found != expected:
        raise Broken(f"{what} found something else")


def _cut(tape: Tape, steps: int, random: Random) -> Tape:
    """The power goes after so many steps of this tape: one legal image of it."""
    platter = Platter(tape.image)
    for step in tape.steps[:steps]:
        platter.play(step)
    return Tape(platter.sample(random), boots=3)
