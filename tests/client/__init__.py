# SPDX-License-Identifier: Apache-2.0
"""Tests of the public client over a broker in this process."""
