"""Lines of JSON and rows of CSV as columns: the same records, dead letters and offsets as without a sink on tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import CollectSink, DeadLetter, ErrorPolicy
from dsv2.arrow import ArrowForeachBatchSink
from dsv2.arrow.decoded import keeps_values
from dsv2.arrow.schema import table_to_rows
from dsv2.connectors.files import FileFormat, FilesSource, LocalFile, csv_records, csv_rows
from dsv2.connectors.formats import JsonDecoder, json_records
from dsv2.errors import JobError, SchemaError
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


# --- CSV --------------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    id: int
    text: str = ""
    value: float | None = None
    flag: bool | None = None
    at: datetime | None = None
    day: date | None = None
    price: Decimal | None = None
    note: str | None = None


NAMES = b"id,note,text,more,value,flag,at,day,price\n"
VALUES = [
    (b"1,,,,,,,,", Row(1)),
    (b'"2","a ""b"",\r\nc"," d",x,-0.0,true,,,', Row(2, " d", -0.0, True, note='a "b",\r\nc')),
    (b"-9223372036854775808,null,NaN,,nan,0,,,", Row(-(1 << 63), "NaN", float("nan"), False, note="null")),
    (b"3,\xc3\xa9,\xef\xbb\xbf,,-Infinity,1,,,", Row(3, "\ufeff", float("-inf"), True, note="\u00e9")),
    (
        b'4,"",\x00,,1e-400,false,2024-03-31 02:30:00.000001,,',
        Row(4, "\0", 0.0, False, datetime(2024, 3, 31, 2, 30, 0, 1)),
    ),
    (
        b"5,,\\,,.5,TRUE,0001-01-01,9999-12-31,-1.50",
        Row(5, "\\", 0.5, True, datetime(1, 1, 1), date.max, Decimal("-1.5")),
    ),
]
REFUSED = [
    ("id", [b"", b" 1", b"1.0", b"0x10", b"0X1", b"1_0", b"9223372036854775808", b"\xd9\xa1"]),
    ("value", [b"1e400", b"0x1p3", b"nan(1)", b" ", b"1,5", b"1d"]),
    ("flag", [b"yes", b"2", b" true"]),
    ("at", [b"2024-01-01T00:00:00Z", b"2024-02-30", b"0000-01-01", b"2024-01-01T00:00:00.1234567", b"24-01-01"]),
    ("day", [b"2024-02-30", b"0000-01-01", b"2024-01-01T00:00:00", b"1/2/2024"]),
    ("price", [b"0.0000000000000000001", b"100000000000000000000", b"NaN", b"1e-19"]),
]


class Line(NamedTuple):
    id: int
    text: str


def lines(folder: Path, content: bytes) -> Found:
    return check(folder, content, csv_records(Line), Line)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n"])
def test_texts_are_values(tmp_path: Path, end: bytes) -> None:
    content = b"\xef\xbb\xbf" + NAMES + end.join(line for line, _ in VALUES)
    records, letters = check(tmp_path, content, csv_records(Row), Row)
    wanted = [row._replace(price=row.price and row.price.quantize(Decimal("1e-18"))) for _, row in VALUES]
    assert (repr(records), letters) == (repr(wanted), [])


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in REFUSED for text in texts])
def test_text_that_is_no_value_loses_no_other_row(tmp_path: Path, name: str, text: bytes) -> None:
    row = {"id": b"1", name: b'"%s"' % text}
    bad = b",".join(row.get(column, b"") for column in NAMES.decode().strip().split(","))
    content = NAMES + b"7,,,,,,,,\n" + bad + b"\n8,,,,,,,,\n"
    records, ((letter, line, error),) = check(tmp_path, content, csv_records(Row), Row)
    assert ([row.id for row in records], line, letter[name]) == ([7, 8], 3, text.decode())
    assert error.startswith(f"Field {name!r} of Row: ")


@pytest.mark.parametrize(
    "bad", [b'1,"x"y', b'1,x"y"', b'"1', b'1,"x,"y",z"', b"1,2,3,4", b"1,caf\xe9", b'1,"x"" "', b"1,a\rb"]
)
def test_rows_are_those_of_csv_rows(tmp_path: Path, bad: bytes) -> None:
    """Rows that Arrow would read in another way, or not at all."""
    content = b"id,text\n" + b"".join(b"%d,b\n" % number for number in range(3)) + bad + b'\n7,"c\nd"\n8,"e"\n'
    records, letters = lines(tmp_path, content)
    found, others = read(tmp_path, content, csv_rows(dict), dict, to_tables=False)
    assert [(str(row.id), row.text) for row in records] == [(row["id"], row["text"]) for row in found]
    assert letters == others


def test_rows_after_a_bad_one_are_read_in_order(tmp_path: Path) -> None:
    rows = [b'%d,"%s\n"\n' % (number, b"x" * (number % 90)) for number in range(20_000)]
    content = b"id,text\n" + b"".join([*rows[:9_001], b'"\n', *rows[9_001:]])
    records, letters = lines(tmp_path, content)
    assert [row.id for row in records] == list(range(20_000))
    assert [letter[:2] for letter in letters] == [(b'"\n', 18_004)]


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n\r\n", b"id,text\n", b"text,id\n\n\n"]
)
def test_file_without_rows(tmp_path: Path, content: bytes) -> None:
    assert lines(tmp_path, content) == ([], [])


def test_columns_of_a_file_are_those_of_the_class(tmp_path: Path) -> None:
    assert check(tmp_path, b"\n" + b'"more";id\n;1\n', csv_records(Id, delimiter=";"), Id) == ([Id(1)], [])
    with pytest.raises(JobError, match=r"has no column 'id'. Its columns are text, more"):
        check(tmp_path, b"text,more\n1,2\n", csv_records(Id), Id)
    assert read(tmp_path, b"id,a,a\n1,2,3\n", csv_records(Id), Id, to_tables=True)[1][0][:2] == (b"id,a,a\n", 1)
    with pytest.raises(SchemaError, match="'data' of Reading is binary, which CSV does not have"):
        csv_records(Reading)


class Id(NamedTuple):
    id: int


class Pair(NamedTuple):
    a: str
    b: str


def outcomes(file: LocalFile, file_format: FileFormat[Any]) -> list[tuple[Any, Any]]:
    """The offset of each value in a file, with its record, or with the reason why it has none."""
    found = list[tuple[Any, Any]]()
    for batch in file_format.read(file, 0, file.size()):
        assert batch.offsets is not None
        assert batch.decode is not None
        for offset, value in zip(batch.offsets(), batch.values, strict=True):
            try:
                found.append((offset, batch.decode(value)))
            except ValueError as error:
                found.append((offset, str(error)))
    return found


@given(
    st.lists(st.sampled_from(['"', '""', ",", "\n", "\r\n", "\r", "x", " ", "\u00e9", "\0", 'a,"b"\n']), max_size=25)
)
def test_any_content_has_the_rows_of_csv_rows(parts: list[str]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "a")
        path.write_bytes(f"a,b\n{''.join(parts)}".encode())
        file = LocalFile(str(path))
        assert outcomes(file, csv_records(Pair)) == outcomes(file, csv_rows(lambda row: Pair(**row)))
