"""Files with parts that cannot be read: the good records are read, and the error policy decides about the others."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import narwhals as nw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsv2 import CollectSink, DeadLetter, ErrorPolicy, JobError
from dsv2.arrow import ArrowForeachBatchSink
from dsv2.connectors.files import (
    FileFormat,
    FilesSource,
    LocalFile,
    csv_rows,
    json_lines,
    parquet_records,
    parquet_rows,
    text_lines,
)
from dsv2.connectors.formats import avro_files
from dsv2.errors import UserFunctionError
from tests.support import local_environment

LETTERS = ErrorPolicy().dead_letter(Exception)
BOM = b"\xef\xbb\xbf"


def read(
    folder: Path, content: bytes, file_format: FileFormat[Any], policy: ErrorPolicy | None = LETTERS, **options: Any
) -> tuple[list[Any], list[DeadLetter[Any]]]:
    """The records of a file, and its dead letters."""
    folder.mkdir(exist_ok=True)
    (folder / "a").write_bytes(content)
    env, good, bad = local_environment(), CollectSink[Any](), CollectSink[DeadLetter[Any]]()
    stream = env.from_source(FilesSource(folder, file_format)).with_uid("in")
    if policy is not None:
        stream.with_error_policy(policy).dead_letters(object).to_sink(bad)
    stream.to_sink(good)
    env.execute(**options)
    return good.results, bad.results


def offset_of(letter: DeadLetter[Any]) -> Any:
    assert letter.position is not None
    assert letter.position.split == "a"
    return letter.position.offset


def failure(folder: Path, content: bytes, file_format: FileFormat[Any]) -> UserFunctionError:
    with pytest.raises(UserFunctionError) as failed:
        read(folder, content, file_format, None)
    return failed.value


# --- Lines ------------------------------------------------------------------------------------------------------------


def test_only_the_end_of_a_line_is_stripped(tmp_path: Path) -> None:
    content = BOM + b"one\r\n \t\n\n\r\n\xef\xbb\xbftwo\r\r\nthree \nfour"
    assert read(tmp_path, content, text_lines(str)) == (["one", " \t", "\ufefftwo\r", "three ", "four"], [])
    for end in (b"\n", b"\r\n"):
        lines = [b'{"a": 1}', b"", b" \t", b' {"a": 2} ']
        assert read(tmp_path, BOM + end.join(lines), json_lines(dict)) == ([{"a": 1}, {"a": 2}], [])
        lines = [b"a,b", b"", b" 1 ,\t", b'"x\r\ny","\xef\xbb\xbf"']
        wanted = [{"a": " 1 ", "b": "\t"}, {"a": "x\r\ny", "b": "\ufeff"}]
        assert read(tmp_path, BOM + end.join(lines), csv_rows(dict)) == (wanted, [])


@pytest.mark.parametrize("content", [b"", BOM, BOM + b"\n", b"\n\r\n"])
@pytest.mark.parametrize("file_format", [text_lines(str), json_lines(dict), csv_rows(dict)])
def test_empty_file_has_no_records(tmp_path: Path, content: bytes, file_format: FileFormat[Any]) -> None:
    assert read(tmp_path, content, file_format) == ([], [])


@pytest.mark.parametrize(
    ("file_format", "first", "bad"),
    [
        (text_lines(str), "1", b"caf\xe9\r\n"),
        (json_lines(int), 1, b'"caf\xe9"\n'),
        (json_lines(int), 1, b'"\xed\xa0\x80"\n'),  # a surrogate
        (json_lines(int), 1, b"[" * 100_000 + b"\n"),
        (json_lines(int), 1, b"1\x002\n"),
    ],
)
def test_bad_line_is_a_dead_letter(tmp_path: Path, file_format: FileFormat[Any], first: Any, bad: bytes) -> None:
    good, (letter,) = read(tmp_path, b"1\n" + bad + b"1\n", file_format)
    assert good == [first, first]
    assert (letter.record, offset_of(letter)) == (bad, 2)


# --- CSV --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'2,"x"y\n', "line 3: ',' expected after '\"'"),
        (b"2,caf\xe9\n", r"line 3, column 2: the byte 0xe9 is not valid in UTF-8"),
        (b"2\n", r"line 3 has 1 values, but there are 2 columns"),
        (b"2,b,\n", r"line 3 has 3 values, but there are 2 columns"),
        (b" \n", r"line 3 has 1 values"),
    ],
)
def test_bad_row_of_csv_loses_no_other(tmp_path: Path, bad: bytes, reason: str) -> None:
    content = b"id,text\n1,a\n" + bad + b'3,"c\nd"\n4,d\n'
    good, (letter,) = read(tmp_path, content, csv_rows(dict))
    assert [row["id"] for row in good] == ["1", "3", "4"]
    assert (letter.record, offset_of(letter)) == (bad, 3)
    assert failure(tmp_path, content, csv_rows(dict)).cause_message.startswith(reason)
    good, _ = read(tmp_path, content, csv_rows(dict), None, skip_records={"in": [("a", 3)]})
    assert len(good) == 3


def test_quote_that_is_not_closed_loses_no_other_row(tmp_path: Path) -> None:
    rows = "".join(f"{number},b\n" for number in range(3, 10_000))
    good, (letter,) = read(tmp_path, f'id,text\n1,a\n2,"b\n{rows}'.encode(), csv_rows(lambda row: int(row["id"])))
    assert good == [1, *range(3, 10_000)]
    assert (letter.record, offset_of(letter)) == (b'2,"b\n', 3)
    assert letter.error_message == "line 3: unexpected end of data"


def test_long_values_are_read(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    assert read(tmp_path, b"a,b\n1," + b"x" * 200_000 + b"\n", csv_rows(dict))[0] == [{"a": "1", "b": "x" * 200_000}]
    assert csv.field_size_limit() >= before


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"a,a\n", "line 1: two columns have the same name, so the columns of the file are unknown"),
        (b'"a"x,b\n', "line 1: "),
        (b"caf\xe9,b\n", "line 1, column 1: the byte 0xe9 is not valid"),
        (b"\xff\xfea\x00,\x00b\x00\n", "line 1, column 1: the byte 0xff is not valid"),  # UTF-16
        (b"\x1f\x8b\x08\x00a,b\n", "line 1, column 1: the byte 0x8b is not valid"),  # gzip
    ],
)
def test_bad_names_of_columns_are_one_failure(tmp_path: Path, header: bytes, reason: str) -> None:
    good, (letter,) = read(tmp_path, header + b"1,2\n3,4\n", csv_rows(dict))
    assert (good, letter.record) == ([], header)
    assert failure(tmp_path, header + b"1,2\n", csv_rows(dict)).cause_message.startswith(reason)


def test_rows_are_those_of_the_library(tmp_path: Path) -> None:
    rows = [["a", "b"], ['x "y"', "1\r\n2"], ["", "\r"], [" ", ","], ["é\u2028\x85", "\\N"]]
    target = io.StringIO(newline="")
    csv.writer(target).writerows(rows)
    good, letters = read(tmp_path, target.getvalue().encode(), csv_rows(dict))
    assert ([*map(list, map(dict.values, good))], letters) == (rows[1:], [])


# --- Parquet and Avro -------------------------------------------------------------------------------------------------


def parquet(table: pa.Table, **options: Any) -> bytes:
    target = pa.BufferOutputStream()
    pq.write_table(table, target, compression="none", use_dictionary=False, **options)
    return bytes(target.getvalue())


def test_damaged_parquet_file_is_one_failure(tmp_path: Path) -> None:
    data = parquet(pa.table({"n": [1, 2]}))
    for content in (b"", b"text", data[:-5], data[20:]):
        good, letters = read(tmp_path, content or b"PAR1", parquet_rows(dict))
        assert good == []
        assert [letter.record for letter in letters] == [str(tmp_path / "a")]
        assert (
            "is damaged or not a Parquet file"
            in failure(tmp_path, content or b"PAR1", parquet_rows(dict)).cause_message
        )


def test_damaged_row_group_loses_no_other(tmp_path: Path) -> None:
    table = pa.table({"n": range(9), "text": [f"text {number}" for number in range(9)]})
    data = bytearray(parquet(table, row_group_size=3, write_statistics=False))
    place = data.index(b"text 3") - 30
    data[place : place + 20] = b"\xff" * 20
    good, letters = read(tmp_path, bytes(data), parquet_rows(lambda row: row["n"]))
    assert good == [0, 1, 2, 6, 7, 8]
    assert [(letter.record, offset_of(letter)) for letter in letters] == [(str(tmp_path / "a"), 4)]


@pytest.mark.parametrize("int96", [True, False])
def test_times_of_parquet_that_python_does_not_have(tmp_path: Path, int96: bool) -> None:
    times = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]
    array = pa.array([*times, None], pa.timestamp("us", "UTC"))
    data = parquet(pa.table({"at": array}), use_deprecated_int96_timestamps=int96)
    good, _ = read(tmp_path, data, parquet_rows(lambda row: row["at"]))
    assert [value and value.replace(tzinfo=UTC) for value in good] == [*times, None]
    late = pa.array([0, 253_402_300_800_000_000], pa.timestamp("us"))
    content = parquet(pa.table({"n": [1, 2], "at": late}), use_deprecated_int96_timestamps=int96)
    good, (letter,) = read(tmp_path, content, parquet_rows(lambda row: row["n"]))
    assert good == [1]
    assert offset_of(letter) == 2
    assert letter.error_message.startswith("row 2, column 'at': Python has no such value of timestamp[us]")


def test_maps_of_parquet_are_dicts(tmp_path: Path) -> None:
    kind = pa.map_(pa.string(), pa.map_(pa.int32(), pa.bool_()))
    rows = [{"m": {"a": {1: True}}, "s": [{"x": {"b": {}}}]}, {"m": None, "s": None}]
    columns = [pa.field("m", kind), pa.field("s", pa.list_(pa.struct([("x", kind)])))]
    content = parquet(pa.Table.from_pylist(rows, pa.schema(columns)))
    assert read(tmp_path, content, parquet_rows(dict)) == (rows, [])


def test_names_of_columns_of_parquet(tmp_path: Path) -> None:
    content = parquet(pa.table({"a": [1], "b.c": [2], "s": [{"x": 3, "y": 4}]}))
    assert read(tmp_path, content, parquet_rows(dict, columns=["a", "b.c"]))[0] == [{"a": 1, "b.c": 2}]
    assert read(tmp_path, content, parquet_rows(dict, columns=["s.x"]))[0] == [{"s": {"x": 3}}]
    with pytest.raises(JobError, match=r"columns \['A', 'z'\] are to be read, but .*a has the columns a, b.c, s"):
        read(tmp_path, content, parquet_rows(dict, columns=["A", "a", "z"]))
    twice = parquet(pa.table([pa.array([1]), pa.array([2])], ["a", "a"]))
    assert "two columns with the same name: a, a" in failure(tmp_path, twice, parquet_rows(dict)).cause_message


def test_storage_that_fails_is_not_a_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"text, which is not Parquet")

    def fail(file: LocalFile) -> Any:
        raise OSError("connection reset")

    monkeypatch.setattr(LocalFile, "open_in_arrow", fail)
    with pytest.raises(OSError, match="connection reset"):
        list(parquet_rows(dict).read(LocalFile(str(tmp_path / "a")), 0, 1))


def test_damaged_avro_file_keeps_what_was_read(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
    target = io.BytesIO()
    fastavro.writer(target, schema, [{"n": number} for number in range(1000)], sync_interval=100)
    data = target.getvalue()
    good, (letter,) = read(tmp_path, data[:-50], avro_files(dict))
    assert [row["n"] for row in good] == [*range(len(good))]
    assert 900 < len(good) < 1000
    assert (letter.record, offset_of(letter)) == (str(tmp_path / "a"), len(good) + 1)
    assert read(tmp_path, b"Obj no", avro_files(dict))[1][0].record == str(tmp_path / "a")
    assert "cannot be read" in failure(tmp_path, b"no Avro", avro_files(dict)).cause_message


def test_rows_have_the_number_of_their_first_line(tmp_path: Path) -> None:
    rows = "".join(f'{n},"two\nlines"\n\n' if n % 5000 == 1 else f"{n},x\n" for n in range(10_000))

    def number(row: dict[str, str]) -> int:
        return 1 // (int(row["n"]) % 4000 > 2) * int(row["n"])

    good, letters = read(tmp_path, f"n,t\n{rows}".encode(), csv_rows(number))
    assert len(good) == 10_000 - 9
    rows_of: list[Any] = [letter.record for letter in letters]
    assert [int(row["n"]) for row in rows_of] == [0, 1, 2, 4000, 4001, 4002, 8000, 8001, 8002]
    assert [offset_of(letter) for letter in letters] == [2, 3, 6, 4004, 4005, 4006, 8006, 8007, 8008]


class Sold(NamedTuple):
    n: int
    at: datetime | None = None
    text: str | None = None
    price: Decimal | None = None
    tags: list[str | None] | None = None


SOLD = pa.table(
    {
        "tags": pa.array([["a", None], None, []], pa.large_list(pa.string())),
        "text": pa.array(["", None, "x"]).dictionary_encode(),
        "n": pa.array([1, -(2**31), 3], pa.int32()),
        "at": pa.array([datetime.max, None, datetime.min], pa.timestamp("us")),
        "price": pa.array([Decimal("1.5"), None, Decimal("-0.25")]),
        "other": pa.array([{"x": 1}, None, None]),
    }
)


def test_records_of_parquet_are_those_of_its_rows(tmp_path: Path) -> None:
    for table in (SOLD, SOLD.slice(0, 0)):
        content = parquet(table, row_group_size=2)
        rows, _ = read(tmp_path, content, parquet_rows(lambda row: Sold(*map(row.get, Sold._fields))))  # type: ignore[arg-type]
        assert read(tmp_path, content, parquet_records(Sold)) == (rows, [])


def test_functions_on_tables_receive_the_columns_of_parquet(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(parquet(SOLD, row_group_size=2))
    env, sums, made = local_environment(), list[int](), Sold.__new__
    sold = env.from_source(FilesSource(tmp_path, parquet_records(Sold))).where(nw.col("n") > 0)
    sold.to_sink(ArrowForeachBatchSink(lambda table, batch_id: sums.append(sum(table["n"].to_pylist())), Sold))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sold, "__new__", lambda *values: pytest.fail("A record was made."))
        env.execute()
    assert (sum(sums), Sold.__new__) == (4, made)


def test_row_of_parquet_that_does_not_fit_is_one_failure(tmp_path: Path) -> None:
    content = parquet(pa.table({**{name: SOLD[name] for name in Sold._fields}, "n": pa.array([1, None, 3])}))
    good, (letter,) = read(tmp_path, content, parquet_records(Sold))
    assert [sold.n for sold in good] == [1, 3]
    assert letter.record == {"n": None, "at": None, "text": None, "price": None, "tags": None}
    assert "Field 'n' of Sold is None" in str(letter)
