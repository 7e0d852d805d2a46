# SPDX-License-Identifier: Apache-2.0
"""The command line: one file per command, or per family of commands.

May not: hold a rule of the service. What a command can do, a program can do through `oncemq.connect`.
The idea: a command imports what it needs when it runs, so that `oncemq --help` is quick.
Next: main.py, where the commands are registered; exits.py for the exit codes.
"""
