# SPDX-License-Identifier: Apache-2.0
"""Java is found by itself: the machine's own where it is new enough, else the one that pip installed."""

from __future__ import annotations

import subprocess
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
