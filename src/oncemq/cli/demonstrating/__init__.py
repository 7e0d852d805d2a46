# SPDX-License-Identifier: Apache-2.0
"""`oncemq demo` in parts: processes that work, a director who kills them, and what came of it.

May not: be imported by anything but the command; reach a process that the demo did not start itself.
The idea: the clients are those of `oncemq torture`, at a pace that people can watch, and the judges are the same.
Next: stage.py for who plays, director.py for what happens to them, lake.py for Spark.
"""
