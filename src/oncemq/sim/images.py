# SPDX-License-Identifier: Apache-2.0
"""Crash images: at every step of a recorded run, every way a power cut could have left the disk, recovered and judged.

May not: judge by itself; subjects know what they promised. Nor count an image twice.
The idea: at each step of a tape two things may happen.

    power cut    every image (or a sample) is recovered from: everything promised by then is there, and nothing else
    kill -9      the next start recovers from the page cache; then at each step of *that* recovery the power may be cut, and
                 what it has found, once it is open, may have been told: it must not vanish any more

From each disk that a recovery leaves: kill -9 and recover again, the same; one more durable thing, power cut and recover, the
same and that thing; a power cut in the middle of the recovery, the same. Recovery is a function of the image, so a disk that was
seen before, under the same promise, is left out, and not counted.
A seed is one recorded run; `oncemq sim --images N` records runs until N different images were recovered.
Next: sim/platter.py for images, sim/subjects.py for who is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from crc32c import crc32c

from oncemq.sim.platter import Platter
from oncemq.sim.subject_client import OutboxSubject, StateSubject
from oncemq.sim.subject_journal import JournalSubject
from oncemq.sim.subjects import Broken, Subject
from oncemq.sim.tape import PARTS_PER_WRITE_MAX, Image, Mark, Step, Tape

SUBJECTS: dict[str, Callable[[Random], Subject]] = {
    "journal": JournalSubject,
    "outbox": OutboxSubject,
    "state directory": StateSubject,
}
ALL_UP_TO = 4096
"""Twelve pending sectors, each there or not: up to here all images of a point are taken, beyond it a sample."""
SAMPLE = 200
SECOND_ALL_UP_TO = 16
SECOND_SAMPLE = 6
"""Fewer in a recovery after kill -9: it has as many steps as ten drains."""
PARTS_PER_WRITE = (PARTS_PER_WRITE_MAX, 4, 1)
"""One of these for each run: a group is written at once, or in several pieces between which its process may die."""
VIOLATIONS_MAX = 5
"""Per run: more would say the same again."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one seed gave: how many different images, and what was wrong with which."""

    seed: int
    subject: str
    points: int
    images: int
    digest: int
    """Checksum of all images in their order: the same seed gives the same."""
    violations: list[str]


class _Enough(Exception):
    """As many images or violations as were asked for."""


class _Run:
    """One recorded run, and all that is recovered from it."""

    def __init__(self, subject: Subject, random: Random, images_max: int | None) -> None:
        self.images = 0
        self.digest = 0
        self.violations: list[str] = []
        self._subject = subject
        self._random = random
        self._images_max = images_max
        self._seen: set[int] = set()
        self._left: set[int] = set()
        """Disks that a recovery has left and that were looked at."""

    def visit(self, steps: list[Step], all_up_to: int, sample: int) -> None:
        """At every step let the process die, then the power."""
        platter, promise = Platter(), 0
        for point, step in enumerate([Mark(0), *steps]):
            platter.play(step)
            promise = step.promise if isinstance(step, Mark) else promise
            self._kill(f"step {point}", platter, promise)
            for image in platter.images(self._random, all_up_to=all_up_to, sample=sample):
                self._power_cut(f"step {point}", image, promise, life=1)

    # --- deaths ----------------------------------------------------------------------------------------

    def _kill(self, where: str, platter: Platter, promise: int) -> None:
        """Only the process dies. What was pending is pending still when the next one recovers, and dies in its turn."""
        if not self._is_new(platter.cache(), (promise, "cache")):
            return
        with _Verdict(self, f"{where}, kill -9"):
            tape, platter = platter.after_kill(), platter.fork()
            found = self._subject.recover(tape, life=1)
            self._subject.judge(found, promise, is_cache=True)
            for number, step in enumerate(tape.steps):
                platter.play(step)
                for image in self._few(platter):
                    self._power_cut(f"{where}, kill -9, power cut at step {number} of recovery", image, promise, life=2)
            if self._subject.tells_at_once:
                for image in self._few(platter):
                    self._same(Tape(image, boots=3), found, "a power cut after recovery from kill -9", life=3)
            self._go_on(tape, platter, found, life=1)

    def _power_cut(self, where: str, image: Image, promise: int, *, life: int) -> None:
        """Recover from an image, and look at the disk that leaves."""
        if not self._is_new(image, promise):
            return
        with _Verdict(self, where):
            tape = Tape(image, boots=life + 1)
            found = self._subject.recover(tape, life)
            self._subject.judge(found, promise, is_cache=False)
            left = hash(tuple(tape.cache().items()))
            if left not in self._left:
                self._left.add(left)
                platter = Platter(image)
                self._cut_recovery(tape, platter.fork(), found, life)
                for step in tape.steps:
                    platter.play(step)
                self._go_on(tape, platter, found, life)

    def _cut_recovery(self, tape: Tape, platter: Platter, found: Hashable, life: int) -> None:
        for step in tape.steps[: self._random.randint(0, len(tape.steps))]:
            platter.play(step)
        self._same(Tape(platter.sample(self._random), boots=life + 2), found, "recovery after a recovery that was cut", life + 1)

    def _go_on(self, tape: Tape, platter: Platter, found: Hashable, life: int) -> None:
        """Kill -9 and recover again, do one more thing, cut the power, and recover once more."""
        played = len(tape.steps)
        self._same(tape, found, "the second recovery", life + 1)
        expected = self._subject.go_on()
        for step in tape.steps[played:]:
            platter.play(step)
        what = "recovery after one more thing and a power cut"
        self._same(Tape(platter.sample(self._random), boots=life + 3), expected, what, life + 2)

    # --- the rest --------------------------------------------------------------------------------------

    def _few(self, platter: Platter) -> Iterator[Image]:
        return platter.images(self._random, all_up_to=SECOND_ALL_UP_TO, sample=SECOND_SAMPLE)

    def _is_new(self, image: Image, promise: Hashable) -> bool:
        key = hash((promise, tuple(image.items())))
        if key in self._seen:
            return False
        self._seen.add(key)
        self.images += 1
        for name, (content, _) in image.items():
            self.digest = crc32c(content, crc32c(name.encode(), self.digest))
        return True

    def _same(self, tape: Tape, expected: Hashable, what: str, life: int) -> None:
        if self._subject.recover(tape, life) != expected:
            raise Broken(f"{what} found something else")

    def note(self, problem: str) -> None:
        if problem:
            self.violations.append(problem)
        if len(self.violations) >= VIOLATIONS_MAX or (self._images_max is not None and self.images >= self._images_max):
            raise _Enough


class _Verdict:
    """Whatever recovery dies of is a finding."""

    def __init__(self, run: _Run, where: str) -> None:
        self._run = run
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> bool:
        if problem is not None and (isinstance(problem, _Enough) or not isinstance(problem, Exception)):
            return False
        text = str(problem) if isinstance(problem, Broken) else f"{type(problem).__name__}: {problem}"
        self._run.note(f"{self._where}: {text}" if problem is not None else "")
        return True


def explore(seed: int, *, all_up_to: int = ALL_UP_TO, sample: int = SAMPLE, images_max: int | None = None) -> Recorded:
    """Record one run, then recover from every image of each of its points (of the first points, if there is a bound)."""
    name = list(SUBJECTS)[seed % len(SUBJECTS)]
    parts_per_write = Random(f"{seed}/writes").choice(PARTS_PER_WRITE)
    subject, tape = SUBJECTS[name](Random(f"{seed}/work")), Tape(parts_per_write=parts_per_write)
    run = _Run(subject, Random(f"{seed}/images"), images_max)
    with suppress(_Enough):
        with _Verdict(run, "at work"):
            subject.work(tape)
        run.visit(tape.steps, all_up_to, sample)
    violations = [f"{name}, {violation}" for violation in run.violations]
    return Recorded(seed, name, len(tape.steps) + 1, run.images, run.digest, violations)
