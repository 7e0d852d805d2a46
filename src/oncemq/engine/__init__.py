# SPDX-License-Identifier: Apache-2.0
"""The heart: the loop that drains, decides, appends, syncs and speaks, in that order.

May not: know ZeroMQ, files, clocks or dice but through the ports it is handed.
Next: engine/loop.py, the one loop.
"""
