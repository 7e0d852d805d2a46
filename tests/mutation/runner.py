# SPDX-License-Identifier: Apache-2.0
"""How mutants are run: a pytest plugin that collects once, watches every test once, and then forks a child per mutant."""

from __future__ import annotations

import ast
import importlib
import os
import random
import resource
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.mutation.operators import Function, Mutant, changes, functions, statements

CPU_SECONDS_MIN = 20
"""What a child may take at least; more if the tests it runs took longer without a mutant."""
MEMORY_BYTES_MAX = 4 << 30
TESTS_MAX = 60
"""How many of the tests that reach a mutant are tried, fastest first: who is not noticed by these counts as alive."""
Statement = tuple[str, str, int]
"""Module, function, number of the statement in it."""


def mutants_of(module: ModuleType) -> Iterator[Mutant]:
    """Everything that can be broken in a module."""
    for name, function in functions(_tree(module)):
        for number, (statement, line, text, _) in enumerate(changes(function)):
            yield Mutant(module.__name__, name, number, line, statement, text)


def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))


def _function_of(tree: ast.Module, name: str) -> Function:
    return next(function for found, function in functions(tree) if found == name)


def _live_function(module: ModuleType, name: str) -> FunctionType | None:
    """The function as it is in memory, out of whatever is wrapped around it."""
    found: Any = module
    for part in name.split("."):
        found = vars(found).get(part)
    found = getattr(found, "fget", None) or found
    found = getattr(found, "__func__", None) or getattr(found, "__wrapped__", None) or found
    return found if isinstance(found, FunctionType) else None


def _inside(code: CodeType, name: str) -> CodeType:
    """The code of one function in that of its module."""
    for part in name.split("."):
        code = next(constant for constant in code.co_consts if isinstance(constant, CodeType) and constant.co_name == part)
    return code


def apply(mutant: Mutant) -> None:
    """Swap the code of the function for the broken one, in this process."""
    module = importlib.import_module(mutant.module)
    tree = _tree(module)
    list(changes(_function_of(tree, mutant.function)))[mutant.number][3]()
    function = _live_function(module, mutant.function)
    assert function is not None
    function.__code__ = _inside(compile(ast.fix_missing_locations(tree), str(module.__file__), "exec"), mutant.function)


@dataclass(slots=True)
class Watch:
    """Which statements a test runs: every one of them says so first."""

    modules: list[ModuleType]
    hits: set[Statement] = field(default_factory=set)
    _before: list[tuple[FunctionType, CodeType]] = field(default_factory=list)

    def __enter__(self) -> Watch:
        for module in self.modules:
            vars(module)["_hit"] = self.hits.add
            tree = _tree(module)
            for name, node in functions(tree):
                for index, statement in enumerate(statements(node)):
                    _insert_before(node, statement, ast.parse(f"_hit({(module.__name__, name, index)!r})").body[0])
            code = compile(ast.fix_missing_locations(tree), str(module.__file__), "exec")
            for name, _ in functions(tree):
                self._swap(_live_function(module, name), _inside(code, name))
        return self

    def _swap(self, function: FunctionType | None, code: CodeType) -> None:
        if function is not None:
            self._before.append((function, function.__code__))
            function.__code__ = code

    def __exit__(self, *_: object) -> None:
        for function, code in self._before:
            function.__code__ = code


def _insert_before(function: Function, statement: ast.stmt, new: ast.stmt) -> None:
    for node in ast.walk(function):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and any(child is statement for child in value):
                value.insert(next(index for index, child in enumerate(value) if child is statement), new)
                return


@dataclass(slots=True)
class Seen:
    """What one test did without a mutant."""

    item: pytest.Item
    seconds: float
    hits: frozenset[Statement]


class MutationRun:
    """The plugin: takes the place of pytest's own loop over the tests."""

    def __init__(self, package: str, count: int, seed: int, jobs: int) -> None:
        self._modules = [importlib.import_module(name) for name in _names(package)]
        mutants = [mutant for module in self._modules for mutant in mutants_of(module)]
        self.total = len(mutants)
        random.Random(seed).shuffle(mutants)
        self.chosen = mutants[:count]
        self.survivors: list[Mutant] = []
        self.timeouts = 0
        self._jobs = jobs

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        with Watch(self._modules) as watch:
            seen = [entry for item in session.items if (entry := _seen(item, watch.hits)) is not None]
        print(f"\n{len(seen)} tests, {self.total} mutants, {len(self.chosen)} chosen", flush=True)
        running: dict[int, Mutant] = {}
        for done, mutant in enumerate(self.chosen):
            running[self._fork(mutant, seen)] = mutant
            if len(running) >= self._jobs:
                self._reap(running)
            if done % 25 == 24:
                print(f"{done + 1} mutants, {len(self.survivors)} alive", flush=True)
        while running:
            self._reap(running)
        return True

    def _fork(self, mutant: Mutant, seen: list[Seen]) -> int:
        place = mutant.module, mutant.function, mutant.statement
        concerned = sorted((entry for entry in seen if place in entry.hits), key=lambda entry: entry.seconds)[:TESTS_MAX]
        child = os.fork()
        if child == 0:
            os._exit(_run(mutant, concerned))
        return child

    def _reap(self, running: dict[int, Mutant]) -> None:
        child, status = os.wait()
        mutant = running.pop(child)
        if os.WIFSIGNALED(status):
            self.timeouts += 1
        elif os.WEXITSTATUS(status) == 0:
            self.survivors.append(mutant)
            print(f"alive: {mutant}", flush=True)


def _seen(item: pytest.Item, hits: set[Statement]) -> Seen | None:
    """Run a test as it is; one that fails proves nothing and is left out, loudly."""
    hits.clear()
    started = time.process_time()
    reports = runtestprotocol(item, log=False, nextitem=None)
    if any(report.failed for report in reports):
        print(f"FAILS WITHOUT A MUTANT: {item.nodeid}", flush=True)
        return None
    return Seen(item, time.process_time() - started, frozenset(hits))


def _run(mutant: Mutant, concerned: list[Seen]) -> int:
    """In the child: break the product, run the tests that reach the place, and say whether one noticed."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    seconds = int(CPU_SECONDS_MIN + 5 * sum(entry.seconds for entry in concerned))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    try:
        apply(mutant)
        for entry in concerned:
            if any(report.failed for report in runtestprotocol(entry.item, log=False, nextitem=None)):
                return 1
    except BaseException:
        return 1
    return 0


def _names(package: str) -> list[str]:
    folder = Path(str(importlib.import_module(package).__file__)).parent
    return sorted(f"{package}.{path.stem}" for path in folder.glob("*.py") if path.stem != "__init__")
