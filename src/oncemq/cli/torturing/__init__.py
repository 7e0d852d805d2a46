# SPDX-License-Identifier: Apache-2.0
"""`oncemq torture` in parts: real processes, the faults they meet, and what they wrote down.

May not: be imported by anything but commands that harm (torture, demo); reach what the run did not make itself.
The idea: a parent that starts and harms (performance.py, nemesis.py), children that work and write history (roles.py).
Next: performance.py for the order of things.
"""
