# SPDX-License-Identifier: Apache-2.0
"""The files that begin first are there, and hold tests with real processes: what was renamed would quietly begin last.

Next: tests/conftest.py, which sorts.
"""

from __future__ import annotations

import pytest

from tests.conftest import LONG
from tests.tidy.source import page


@pytest.mark.parametrize("name", LONG)
def test_a_file_that_begins_first_has_real_processes(name: str) -> None:
    assert "pytest.mark.real" in page(name)
