# SPDX-License-Identifier: Apache-2.0
"""Tests, in folders that mirror the rooms of src/oncemq. A package, so that helpers are imported as `tests.<room>.<helper>`."""
