# SPDX-License-Identifier: Apache-2.0
"""The memory: what a broker wrote down, in segments of groups of records, found again after any crash.

May not: touch the world but through ports.Disk; know a rule of the broker beyond the shape of its records.
The idea: append · sync · read · trim · snapshot, and nothing else, so that another store could stand here one day.
What was synced is never lost in silence; what was not synced may be there or not, but never half.
Next: codec.py for the bytes of a record, segment.py for groups and files, recovery.py for what a start does.
"""
