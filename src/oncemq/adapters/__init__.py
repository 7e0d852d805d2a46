# SPDX-License-Identifier: Apache-2.0
"""The hands: ZeroMQ sockets, real files, real clocks, real randomness. Thin and boring.

May not: know a rule. An adapter does what ports.py says and nothing more; the same tests run over it and over its
twin in sim/, so that neither can drift.
Next: os_disk.py.
"""
