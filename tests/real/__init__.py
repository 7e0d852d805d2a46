# SPDX-License-Identifier: Apache-2.0
"""Tests with real processes that die at every instant that matters."""
