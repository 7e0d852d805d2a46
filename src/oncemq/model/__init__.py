# SPDX-License-Identifier: Apache-2.0
"""Nouns: names, messages, blocks, receipts, refusals. Frozen, and valid from birth.

May not: know time, randomness, files, sockets, threads or logging; import anything but errors and limits.
Next: model/block.py, the layout everything else carries around.
"""
