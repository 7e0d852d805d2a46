# SPDX-License-Identifier: Apache-2.0
"""One test per interleaving that breaks a naive broker (H1–H45 of the design's rules), and per rule that closes it."""
