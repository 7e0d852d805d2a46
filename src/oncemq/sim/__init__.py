# SPDX-License-Identifier: Apache-2.0
"""A small world: seeded clock, dice, disk and network, in which the production broker and clients run unchanged.

May not: import adapters, or look at the real time; everything comes from the seed.
Next: sim/disk.py for the disk that forgets, sim/network.py for the network that loses, sim/world.py for time and processes.
"""
