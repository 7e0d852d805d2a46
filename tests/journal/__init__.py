# SPDX-License-Identifier: Apache-2.0
"""Tests of the journal, the outbox and the two disks they stand on."""
