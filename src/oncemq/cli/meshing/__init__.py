# SPDX-License-Identifier: Apache-2.0
"""A real mesh on this machine: nodes as processes, clients that put and get at them, kills, and a verdict.

May not: signal a process it did not start.
Next: nodes.py for the processes, trial.py for a whole run.
"""
