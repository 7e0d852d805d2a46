# SPDX-License-Identifier: Apache-2.0
"""Every option is checked when the query is made, and a complaint names the option and what it may be."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from oncemq.errors import UsageError
from oncemq.pipeline.options import EARLIEST, LATEST, BadOption, sink_options, source_options


def options(**given: str) -> CaseInsensitiveDict:
    return CaseInsensitiveDict({"subscribe": "orders", **given})


def test_what_is_left_out_has_defaults() -> None:
    found = source_options(options(), streaming=False)
    assert (found.address, found.topics) == ("tcp://127.0.0.1:5556", ("orders",))
    assert (found.starting.of("orders"), found.ending.of("orders")) == (EARLIEST, LATEST)
    assert found.fail_on_data_loss
    assert found.columns == ("topic", "offset", "key", "value", "publisher", "put_number", "timestamp")


def test_several_topics_are_named_with_commas_or_as_json() -> None:
    assert source_options(options(subscribe="b, a"), streaming=False).topics == ("a", "b")
    assert source_options(options(subscribe='["b", "a"]'), streaming=False).topics == ("a", "b")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("latest", LATEST),
        ('{"orders": 17}', 17),
        ('{"orders": -1}', LATEST),
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31 12:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ('{"orders": "2026-01-31T13:00:00+01:00"}', datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ],
)
def test_places_are_words_numbers_or_times(text: str, place: object) -> None:
    assert source_options(options(startingOffsets=text), streaming=False).starting.of("orders") == place


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("subscribe", "", "the name of a topic"),
        ("subscribe", "a,a", "the name of a topic"),
        ("subscribe", "not a name", "the name of a topic"),
        ("startingOffsets", "soon", "earliest, latest"),
        ("startingOffsets", "{", "earliest, latest"),
        ("startingOffsets", '{"orders": true}', "earliest, latest"),
        ("startingOffsets", '{"orders": -3}', "earliest, latest"),
        ("startingOffsets", '{"others": 1}', "of option 'subscribe' only"),
        ("maxOffsetsPerTrigger", "0", "a whole number above 0"),
        ("maxOffsetsPerTrigger", "many", "a whole number above 0"),
        ("maxBytesPerTrigger", "-1k", "a whole number of bytes"),
        ("minPartitions", "1.5", "a whole number above 0"),
        ("failOnDataLoss", "perhaps", "true or false"),
        ("includeHeaders", "1", "true or false"),
        ("columns", "offset,colour", "one or more of topic"),
        ("subscription", "x", "left out with read"),
    ],
)
def test_a_bad_option_is_named_with_what_it_may_be(option: str, text: str, said: str) -> None:
    with pytest.raises(BadOption, match=f"option '{option}' of format 'oncemq' must be .*{said}"):
        source_options(options(**{option: text}), streaming=False)


def test_a_place_is_needed_for_every_topic_if_one_has_its_own() -> None:
    with pytest.raises(BadOption, match=r"missing: b"):
        source_options(options(subscribe="a,b", startingOffsets='{"a": 1}'), streaming=False)


def test_a_stream_needs_a_name_and_has_no_end() -> None:
    with pytest.raises(BadOption, match=r"'subscription'.*a name of its own.*it is missing"):
        source_options(options(), streaming=True)
    with pytest.raises(BadOption, match=r"'endingOffsets'.*a stream has no end"):
        source_options(options(subscription="q", endingOffsets="latest"), streaming=True)


def test_an_option_nobody_knows_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match=r"no option 'maxoffsetpertrigger' here; it knows .*maxOffsetsPerTrigger"):
        source_options(options(maxOffsetPerTrigger="5"), streaming=False)


def test_sizes_may_have_a_unit() -> None:
    assert source_options(options(maxBytesPerTrigger="64m"), streaming=False).bytes_per_trigger == 64 * 1024**2


def test_a_sink_knows_its_own_options_and_those_of_spark() -> None:
    given = CaseInsensitiveDict({"topic": "out", "checkpointLocation": "x", "queryName": "y"})
    assert sink_options(given, streaming=True).topic == "out"
    with pytest.raises(BadOption, match=r"'transactionId'.*left out with writeStream"):
        sink_options(CaseInsensitiveDict({"transactionId": "t"}), streaming=True)
    with pytest.raises(BadOption, match=r"'topic'"):
        sink_options(CaseInsensitiveDict({"topic": "a b"}), streaming=False)
