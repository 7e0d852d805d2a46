# SPDX-License-Identifier: Apache-2.0
"""`format("oncemq")`: the one class Spark asks for readers and writers.

May not: touch the network: Spark makes it just to ask for a schema.
Next: source.py and sink.py; options.py for what can be said.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from oncemq.errors import UsageError
from oncemq.pipeline.arrow import schema_of
from oncemq.pipeline.options import SinkOptions, columns_of, sink_options, source_options
from oncemq.pipeline.sink import TopicStreamWriter, TopicWriter
from oncemq.pipeline.source import TopicReader, TopicStreamReader

_BYTES = "binary or string"
_HEADERS = "array<struct<key: string, value: binary or string>> or map<string, binary or string>"
_WRITABLE = {"value": _BYTES, "key": _BYTES, "topic": "string", "headers": _HEADERS}


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

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = sink_options(self.options, streaming=False)
        check_columns(schema, options, overwrite=overwrite)
        return TopicWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = sink_options(self.options, streaming=True)
        check_columns(schema, options, overwrite=overwrite)
        return TopicStreamWriter(options)


def check_columns(schema: StructType, options: SinkOptions, *, overwrite: bool) -> None:
    """Refuse what cannot be published before the first task runs."""
    if overwrite:
        raise UsageError("a topic cannot be overwritten: use mode('append'), or outputMode('append')")
    names = schema.fieldNames()
    strangers = [name for name in names if name not in _WRITABLE]
    if "value" not in names or strangers:
        told = f"these are not: {', '.join(strangers)}" if strangers else "'value' is missing"
        raise UsageError(f"format 'oncemq' writes the columns value, key, headers and topic ({told}): select what to publish")
    if options.topic is None and "topic" not in names:
        raise UsageError("no topic to write to: set option 'topic', or have a column 'topic'")
    for field in schema.fields:
        if not _fits(field.name, field.dataType):
            raise UsageError(
                f"column {field.name!r} is {field.dataType.simpleString()}, but must be {_WRITABLE[field.name]}: cast it"
            )


def _fits(name: str, kind: DataType) -> bool:
    match name:
        case "topic":
            return isinstance(kind, StringType)
        case "headers":
            return _are_headers(kind)
        case _:
            return isinstance(kind, BinaryType | StringType)


def _are_headers(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, BinaryType | StringType)
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    pairs = kind.elementType
    return (
        pairs.fieldNames() == ["key", "value"]
        and isinstance(pairs["key"].dataType, StringType)
        and isinstance(pairs["value"].dataType, BinaryType | StringType)
    )
