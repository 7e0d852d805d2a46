# SPDX-License-Identifier: Apache-2.0
"""Everything in this directory runs simulated worlds: they are a step of their own in `make test`.

May not: be imported. Next: pyproject.toml, which lists the markers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.simulated)
