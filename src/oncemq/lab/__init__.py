# SPDX-License-Identifier: Apache-2.0
"""The laboratory: the experiments of the earlier design and of the HyParView papers, with statistics on Spark and figures.

May not: change a machine or a setting to make a figure look better: what runs is what is shipped, with its defaults.
The idea: a trial (trials.py) is one run of one experiment with one seed; trials are spread over Spark tasks, write what they saw
as Parquet (traces.py), are summed up on Spark (statistics.py), and drawn beside the papers' values and closed forms (figures.py).
Next: plans.py for what is run, simulated.py and real.py for how.
"""
