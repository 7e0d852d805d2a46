# SPDX-License-Identifier: Apache-2.0
"""Worlds that once broke a promise: worlds.txt has them, with a line of why; test_worlds.py runs them."""
