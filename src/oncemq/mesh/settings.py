# SPDX-License-Identifier: Apache-2.0
"""Everything about a mesh that can be configured, with the defaults of limits.py.

May not: hold anything that changes while a node lives.
Next: limits.py for units, reasons and origins of the defaults; hyparview.py and node.py for their use.
"""

from __future__ import annotations

import msgspec

from oncemq import limits


class MeshSettings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Times are milliseconds; 0 turns a timer off. Whole nodes need their heartbeats."""

    active: int = limits.MESH_ACTIVE
    passive: int = limits.MESH_PASSIVE
    cold: int = limits.MESH_COLD
    active_walk: int = limits.MESH_ACTIVE_WALK
    passive_walk: int = limits.MESH_PASSIVE_WALK
    walks: int = limits.MESH_WALKS
    shuffle_active: int = limits.MESH_SHUFFLE_ACTIVE
    shuffle_passive: int = limits.MESH_SHUFFLE_PASSIVE
    shuffle_ttl: int = limits.MESH_SHUFFLE_TTL
    shuffle_ms: int = limits.MESH_SHUFFLE_MS
    ask_timeout_ms: int = limits.MESH_ASK_TIMEOUT_MS
    dial_stagger_ms: int = limits.MESH_DIAL_STAGGER_MS
    dials_max: int = limits.MESH_DIALS_MAX
    refusals_max: int = limits.MESH_REFUSALS_MAX
    backoff_ms: int = limits.MESH_BACKOFF_MS
    backoff_ms_max: int = limits.MESH_BACKOFF_MS_MAX
    heartbeat_ms: int = limits.MESH_HEARTBEAT_MS
    heartbeat_timeout_ms: int = limits.MESH_HEARTBEAT_TIMEOUT_MS
    heal_ms: int = limits.MESH_HEAL_MS
    quarantine_ms: int = limits.MESH_QUARANTINE_MS

    hold_messages: int = limits.MESH_HOLD_MESSAGES
    early_messages: int = limits.MESH_EARLY_MESSAGES
    early_bytes: int = limits.MESH_EARLY_BYTES
    hole_grace_ms: int = limits.MESH_HOLE_GRACE_MS
    digest_grace_ms: int = limits.MESH_DIGEST_GRACE_MS
    request_timeout_ms: int = limits.MESH_REQUEST_TIMEOUT_MS
    request_messages: int = limits.MESH_REQUEST_MESSAGES
    retention_ms: int = limits.MESH_RETENTION_MS
    retention_bytes: int = limits.MESH_RETENTION_BYTES
