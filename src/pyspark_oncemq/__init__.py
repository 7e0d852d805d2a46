# SPDX-License-Identifier: Apache-2.0
"""Spark imports every top-level module called pyspark_… and registers its DefaultSource: so format("oncemq") is found by itself.

May not: hold anything else.
Next: oncemq/pipeline/datasource.py.
"""

from oncemq.pipeline.datasource import OnceMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
