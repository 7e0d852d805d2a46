# SPDX-License-Identifier: Apache-2.0
"""docs/mesh.md says what the code does: its diagrams are drawn from the tables, every packet, reason and option is named."""

from __future__ import annotations

import re

import msgspec
import pytest

from oncemq.mesh.diagrams import diagrams
from oncemq.mesh.packets import MESH_PACKETS, Reason
from oncemq.mesh.settings import MeshSettings
from tests.tidy.source import page


@pytest.mark.parametrize("heading", diagrams())
def test_a_state_diagram_of_the_page_is_the_one_the_code_draws(heading: str) -> None:
    drawn = re.search(rf"^### {re.escape(heading)}\n```mermaid\n(.*?)\n```", page("docs/mesh.md"), re.MULTILINE | re.DOTALL)
    assert drawn is not None
    assert drawn.group(1) == diagrams()[heading]


@pytest.mark.parametrize("kind", MESH_PACKETS.values(), ids=lambda kind: kind.__name__)
def test_every_packet_between_nodes_is_on_the_page(kind: type) -> None:
    assert f"`{kind.__name__}`" in page("docs/mesh.md")


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_of_a_down_is_on_the_page(reason: Reason) -> None:
    assert f"`{reason.name}`" in page("docs/mesh.md")


@pytest.mark.parametrize("field", msgspec.structs.fields(MeshSettings), ids=lambda field: field.name)
def test_every_option_is_on_the_page_with_its_default(field: msgspec.structs.FieldInfo) -> None:
    rows = [row for row in page("docs/mesh.md").splitlines() if row.startswith("|") and f"`{field.name}`" in row]
    assert rows
    names = re.findall(r"`(\w+)`", rows[0].split("|")[1])
    defaults = [each.strip() for each in re.split(r", (?=\d)", rows[0].split("|")[2].strip())]
    assert len(names) == len(defaults)
    said = defaults[names.index(field.name)]
    words = {"64 MiB": str(64 * 1024 * 1024), "1 day": str(24 * 3600 * 1000), "10 GiB": str(10 * 1024**3)}
    assert words.get(said, said.replace(",", "")) == str(field.default)
