"""Lines of JSON and rows of CSV as columns: the same records, dead letters and offsets as without a sink on tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from dsv2 import CollectSink, DeadLetter, ErrorPolicy
from dsv2.arrow import ArrowForeachBatchSink
from dsv2.arrow.decoded import keeps_values
from dsv2.arrow.schema import table_to_rows
from dsv2.connectors.files import FileFormat, FilesSource
from dsv2.connectors.formats import JsonDecoder, json_records
from tests.support import local_environment


class Reading(NamedTuple):
    id: int
    value: float | None = None
    text: str = "-"
    flag: bool | None = None
    at: datetime | None = None
    day: date | None = None
    data: bytes | None = None
    numbers: list[int] | None = None


@dataclass(frozen=True)
class Item:
    id: int
    note: str | None
    parts: list[str] = field(default_factory=list)


Found = tuple[list[Any], list[tuple[Any, Any, str]]]
"""Records, and the record, offset and error of dead letters."""


def read(folder: Path, content: bytes, file_format: FileFormat[Any], kind: type, *, to_tables: bool) -> Found:
    folder.mkdir(exist_ok=True)
    (folder / "a").write_bytes(content)
    env, good, bad, tables = local_environment(), CollectSink[Any](), CollectSink[DeadLetter[Any]](), list[pa.Table]()
    stream = env.from_source(FilesSource(folder, file_format)).with_uid("in")
    stream.with_error_policy(ErrorPolicy().dead_letter(Exception)).dead_letters(object).to_sink(bad)
    if to_tables:
        stream.to_sink(ArrowForeachBatchSink(lambda table, _: tables.append(table), kind))
    else:
        stream.to_sink(good)
    env.execute()
    records = [row for table in tables for row in table_to_rows(table, kind)] if to_tables else good.results
    return records, [(it.record, it.position and it.position.offset, it.error_message) for it in bad.results]


def check(folder: Path, content: bytes, file_format: FileFormat[Any], kind: type) -> Found:
    """Read ``content`` as rows and as columns. Returns the rows."""
    rows = read(folder, content, file_format, kind, to_tables=False)
    columns = read(folder, content, file_format, kind, to_tables=True)
    assert repr(columns) == repr(rows)  # which distinguishes -0.0 and NaN
    return rows


def no_single_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let decoding of single values fail."""

    def fail(self: object, data: bytes) -> Any:
        raise AssertionError(data)

    monkeypatch.setattr(JsonDecoder, "__call__", fail)


# --- JSON -------------------------------------------------------------------------------------------------------------

GOOD = [
    b'{"id": 1}',
    b'{"id": -0, "value": -0}',
    b'{"id": 9223372036854775807, "value": -0.0, "text": ""}',
    b'{"id": 2, "value": 1e-400, "text": "\\u0000\\ud83d\\ude00 \xc3\xa9\xef\xbb\xbf", "flag": null}',
    b'{"id": 3, "value": 123456789012345678901234567890, "other": {"id": 4}, "flag": true}',
    b'  {"text": "a\\nb", "id": 4, "id": 5, "other": 1e999}\t',
    b'{"id": 5, "at": "2024-03-31T02:30:00.123456", "day": "0001-01-01", "data": "/w==", "numbers": [1, -2]}',
    b'{"id": 6, "at": "9999-12-31T23:59:59", "numbers": [], "data": ""}',
    b'{"\\u0069d": 7, "other": "\xff"}',
]
BAD = [
    b'{"id": 1.5}',
    b'{"id": true}',
    b'{"id": "1"}',
    b'{"id": null}',
    b"{}",
    b"[1]",
    b"7",
    b"null",
    b'{"id": 1, "value": NaN}',
    b'{"id": 1, "other": NaN}',
    b'{"id": 1, "value": 1.7976931348623159e308}',
    b'{"id": 1, "text": "\xff"}',
    b'{"id": 1, "text": "\\ud800"}',
    b'{"id": 1, "at": "2024-02-30T00:00:00"}',
    b'{"id": 1, "numbers": [null]}',
    b'{"id": 1}}',
    b'{"id": 1',
    b'\xef\xbb\xbf{"id": 1}',
    b"{'id': 1}",
    b'{"id": 1, "other": ' + b"[" * 3_000 + b"]" * 3_000 + b"}",
]


def test_good_lines_are_decoded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = JsonDecoder(Reading)
    wanted = list(map(decode, GOOD))
    no_single_values(monkeypatch)
    content = b"\xef\xbb\xbf" + b"\r\n\n \t\n".join(GOOD)
    assert repr(check(tmp_path, content, json_records(Reading), Reading)) == repr((wanted, []))


@pytest.mark.parametrize("bad", BAD)
def test_bad_line_loses_no_other(tmp_path: Path, bad: bytes) -> None:
    content = b"".join(line + b"\n" for line in (GOOD[0], bad, *GOOD[1:]))
    records, letters = check(tmp_path, content, json_records(Reading), Reading)
    assert (len(records), [letter[:2] for letter in letters]) == (len(GOOD), [(bad + b"\n", 2)])


@pytest.mark.parametrize(
    "lines",
    [
        [b'{"id": 1}{"id": 2}', b'{"id": 3, "text":', b'"x"}'],
        [b'{"id": 1} {"id": 2}', b'{"id": 3, "numbers": [1', b", 2]}"],
        [b'{"id": 1},{"id": 2}', b'{"id": 3', b'"text": "x"}'],
        [b'{"id": 1}\r{"id": 2}', b'{"id": 3', b"}"],
    ],
)
def test_object_is_neither_two_lines_nor_half_a_line(tmp_path: Path, lines: list[bytes]) -> None:
    """As many objects as lines, but no line has one."""
    records, letters = check(tmp_path, b"\n".join(lines), json_records(Reading), Reading)
    assert (records, [offset for _, offset, _ in letters]) == ([], [1, 2, 3])


@pytest.mark.parametrize("line", [b'{"id": 9223372036854775808}', b'{"id": 1, "at": "2024-01-01T00:00:00Z"}'])
def test_value_without_column_remains_that_of_the_row(line: bytes) -> None:
    decoder = JsonDecoder(Reading)
    with pytest.raises(Exception, match="does not fit"):
        decoder.decode_columns([GOOD[0], line])
    assert decoder.decode_all([GOOD[0], line]) == [decoder(GOOD[0]), decoder(line)]


def test_records_of_a_dataclass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_single_values(monkeypatch)
    content = b'{"id": 1, "note": null}\n{"parts": ["a"], "note": "b", "id": 2}'
    assert check(tmp_path, content, json_records(Item), Item) == ([Item(1, None), Item(2, "b", ["a"])], [])


@dataclass
class Doubled:
    id: int

    def __post_init__(self) -> None:
        self.id *= 2


class Price(NamedTuple):
    euros: Decimal


class Nested(NamedTuple):
    item: Item


def test_classes_whose_columns_give_back_their_values() -> None:
    kinds: list[type] = [Reading, Item, Doubled, Price, Nested, dict]
    assert [kind for kind in kinds if keeps_values(kind)] == [Reading, Item]


@pytest.mark.parametrize(("kind", "line"), [(Doubled, b'{"id": 2}'), (Price, b'{"euros": "1.50"}')])
def test_other_classes_are_rows(tmp_path: Path, kind: type, line: bytes) -> None:
    records, _ = read(tmp_path, line, json_records(kind), kind, to_tables=False)
    env, seen = local_environment(), list[Any]()
    source: FilesSource[Any] = FilesSource(tmp_path, json_records(kind))
    stream = env.from_source(source)
    stream.to_sink(ArrowForeachBatchSink(lambda table, _: None, kind))
    stream.map(seen.append).to_sink(CollectSink())
    env.execute()
    assert repr(seen) == repr(records)


def test_file_is_read_in_parts(tmp_path: Path) -> None:
    lines = [b'{"id": %d, "text": "%s"}\n' % (number, b"x" * (number % 50)) for number in range(5_000)]
    (tmp_path / "a").write_bytes(b"".join(lines))
    env, tables = local_environment(), list[pa.Table]()
    source = FilesSource(tmp_path, json_records(Reading), bytes_per_batch=64 << 10)
    env.from_source(source).to_sink(ArrowForeachBatchSink(lambda table, _: tables.append(table), Reading))
    env.execute()
    assert pa.concat_tables(tables)["id"].to_pylist() == list(range(5_000))
    assert len(tables) > 1
