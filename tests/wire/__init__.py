# SPDX-License-Identifier: Apache-2.0
"""Tests of packets as bytes, and of what a broker does with bytes nobody of ours wrote."""
