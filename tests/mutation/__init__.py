# SPDX-License-Identifier: Apache-2.0
"""Mutation score of the pure machines: break one thing in core/ at a time, and see whether a test notices.

May not: touch a file. Mutants live in the memory of a forked process.
The idea: `make mutation` collects tests once, notes which statements each test runs, and then forks a child for every mutant,
which swaps the code of one function and runs the tests that reach it, fastest first, until one fails.
Next: operators.py for what is broken, runner.py for how it is run, docs/testing.md for the score.
"""
