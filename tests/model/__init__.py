# SPDX-License-Identifier: Apache-2.0
"""Tests of the nouns: blocks, names, retentions, receipts."""
