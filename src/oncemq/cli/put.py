# SPDX-License-Identifier: Apache-2.0
"""`oncemq put`: messages from the command line, from a file, or a line each from stdin.

May not: say "stored" before the broker has it on its disk.
The idea: without --id the client is ephemeral: one run, one stream, gone afterwards. With --id a put that gets no answer
stays in the outbox and the next command of that id sends it. Exactly once begins there: lines that were never put
because the command was killed are the caller's to continue, with --from-line.
Next: put_lines.py for stdin, client/client.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncemq.cli.completion import complete_topic
from oncemq.cli.connecting import connected
from oncemq.cli.options import DEFAULT_ADDRESS, Address, Json, OptionalClientId, State, Takeover, TopicName
from oncemq.cli.output import Output, Row, output_of
from oncemq.errors import PutPending, UsageError

if TYPE_CHECKING:
    from oncemq.client.client import Client
    from oncemq.model.message import Headers, Receipt

STDIN = "-"


def put(
    context: typer.Context,
    topic: TopicName,
    values: Annotated[
        list[str] | None, typer.Argument(metavar="VALUE", help="One message each; - reads lines from stdin.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Put the content of this file as one message.")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Put every line of stdin as a message.")] = False,
    from_line: Annotated[int, typer.Option(min=1, help="With --stdin: begin at this line, to go on after an interruption.")] = 1,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of these messages.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; repeatable.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="It is an error if nobody subscribes to the topic.")] = False,
    more: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Put into this topic too, all or none; repeatable.", autocompletion=complete_topic),
    ] = None,
    id: OptionalClientId = None,
    state: State = None,
    takeover: Takeover = False,
    address: Address = DEFAULT_ADDRESS,
    _json: Json = False,
) -> None:
    """Put messages on a topic, and say where each was stored once it is on the broker's disk.

    A topic that nobody subscribes to and nothing retains keeps nothing: the answer is then "not stored".

    oncemq put orders 'one' 'two'
    oncemq put orders --file order.xml --key 4711 --header source=web
    oncemq put orders --topic audit 'both or none'
    generate | oncemq put orders -
    oncemq put orders --stdin --from-line 5001 < orders.txt
    """
    output = output_of(context)
    is_lines = stdin or values == [STDIN]
    given = _given(None if values == [STDIN] else values, file, is_lines=is_lines, from_line=from_line)
    shape = Shape([topic, *(more or [])], key, header or [], strict=strict)
    # With an id a put is kept even if the broker is away; lines are not: nobody wants a file half in the outbox.
    is_kept = id is not None and not is_lines
    with connected(output, address, id=id, state=state, takeover=takeover, offline=is_kept) as client:
        if is_lines:
            from oncemq.cli.put_lines import put_lines

            put_lines(output, client, shape, from_line, is_durable=id is not None)
        _put_given(output, client, shape, given, is_kept=is_kept)


def _put_given(output: Output, client: Client, shape: Shape, given: list[bytes], *, is_kept: bool) -> None:
    """Put each value. Once there is no answer the others are kept too, or told: they were asked for in the same breath."""
    options: dict[str, Any] = {"key": shape.key, "headers": shape.headers, "strict": shape.strict}
    for place, value in enumerate(given, 1):
        try:
            receipts = client.put(shape.topics, value, **options)
        except PutPending:
            if not is_kept:
                _tell_left(output, len(given) - place)
                raise
            for other in given[place:]:
                client.put(shape.topics, other, wait=False, **options)
            output.result({"confirmed": client.flush(timeout=0)}, "all of them are stored by now")
            return
        for receipt in receipts:
            output.result(as_row(receipt), as_text(receipt))


def _tell_left(output: Output, count: int) -> None:
    if count:
        output.warn(f"{count} further value(s) were not put: put them again")


class Shape:
    """What all messages of one command have in common."""

    def __init__(self, topics: list[str], key: str | None, pairs: list[str], *, strict: bool) -> None:
        from oncemq.model.names import check_topic

        self.topics = [check_topic(topic) for topic in topics]
        self.key = None if key is None else _encoded(key)
        self.headers = _headers(pairs)
        self.strict = strict


def _given(values: list[str] | None, file: Path | None, *, is_lines: bool, from_line: int) -> list[bytes]:
    """The values to put, from exactly one of the places they can come from."""
    if bool(values) + (file is not None) + is_lines != 1:
        raise UsageError("give values, or --file, or --stdin")
    if from_line != 1 and not is_lines:
        raise UsageError("--from-line goes with --stdin")
    if file is None:
        return [_encoded(value) for value in values or []]
    try:
        return [file.read_bytes()]
    except OSError as problem:
        raise UsageError(f"cannot read {file}: {problem.strerror}") from problem


def _encoded(text: str) -> bytes:
    """The bytes that were typed, even where they are no text."""
    return text.encode("utf-8", "surrogateescape")


def _is_text(typed: str) -> bool:
    """Bytes that are no text arrive from the shell as lone surrogates (PEP 383)."""
    return not any("\ud800" <= character <= "\udfff" for character in typed)


def _headers(pairs: list[str]) -> Headers | None:
    found: Headers = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals or not _is_text(name):
            raise UsageError(f"--header {pair[:60]!r}: use NAME=VALUE")
        found[name] = value if _is_text(value) else _encoded(value)
    return found or None


def as_row(receipt: Receipt) -> Row:
    return {
        "topic": receipt.topic,
        "stored": receipt.stored,
        "offset": receipt.offset,
        "duplicate": receipt.duplicate,
        "number": receipt.number,
    }


def as_text(receipt: Receipt) -> str:
    if not receipt.stored:
        return f"{receipt.topic}: not stored: no subscribers"
    if receipt.offset is None:
        return f"{receipt.topic}: stored"  # At a node of a mesh where nobody subscribes, or long ago.
    return f"{receipt.topic}: stored at offset {receipt.offset}"
