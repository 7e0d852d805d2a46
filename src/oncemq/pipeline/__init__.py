# SPDX-License-Identifier: Apache-2.0
"""Spark, through PySpark: topics as tables and tables as topics, exactly once.

May not: be imported by anything but cli and pyspark_oncemq; hold a rule of the broker.
The idea: executors read and stage without a session; the driver keeps the subscription and commits. What makes a re-run
harmless lies in the broker (core/staging.py) and in the offsets of the checkpoint (offsets.py), never in a task.
Next: session.py to start, source.py and sink.py for the two directions, arrow.py for how blocks become batches.
"""
