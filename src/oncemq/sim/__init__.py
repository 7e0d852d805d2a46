# SPDX-License-Identifier: Apache-2.0
"""A small world made of seeds: a network that loses, a disk that forgets, a clock that is pushed by hand.

May not: touch the real world; import adapters; use randomness that was not seeded.
The idea: the production machines run here unchanged. Whatever goes wrong can be had again from its seed.
Next: disk.py, the disk with power cuts.
"""
