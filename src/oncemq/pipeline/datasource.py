# SPDX-License-Identifier: Apache-2.0
"""`format("oncemq")`: the one class Spark asks for readers and writers.

May not: touch the network: Spark makes it just to ask for a schema.
Next: source.py and sink.py; options.py for what can be said.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from oncemq.pipeline.arrow import schema_of
from oncemq.pipeline.options import columns_of, source_options
from oncemq.pipeline.source import TopicReader, TopicStreamReader


class OnceMQDataSource(DataSource):
    """Topics of an OnceMQ broker."""

    @classmethod
    def name(cls) -> str:
        return "oncemq"

    def schema(self) -> StructType:
        return from_arrow_schema(schema_of(columns_of(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - the columns are an option
        return TopicReader(source_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002 - as above
        return TopicStreamReader(source_options(self.options, streaming=True))
