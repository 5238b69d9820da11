"""Compressed text files have the records of the same files without compression."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment
from dsv2.connectors.files import FileFormat, FilesSource, csv_records, csv_rows, json_lines, text_lines
from dsv2.connectors.formats import json_records
from dsv2.errors import UserFunctionError
from dsv2.local import LocalRuntime


class Sale(NamedTuple):
    item: str
    amount: int


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd", asbytes=True))


CODECS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zstd}
SALES = [Sale("ä" * (number % 50), number) for number in range(3_000)]
JSON = "".join(json.dumps(sale._asdict()) + "\n" for sale in SALES).encode()
CSV = "\r\n".join(["item,amount", *(f'"{sale.item}",{sale.amount}' for sale in SALES)]).encode()


def sale_of(row: dict[str, Any]) -> Sale:
    return Sale(row["item"], int(row["amount"]))


def sale_of_text(line: str) -> Sale:
    return sale_of(json.loads(line))


FORMATS: dict[str, tuple[bytes, FileFormat[Sale]]] = {
    "text": (JSON, text_lines(sale_of_text)),
    "json": (JSON, json_lines(sale_of)),
    "json_records": (JSON, json_records(Sale)),
    "csv": (CSV, csv_rows(sale_of)),
    "csv_records": (CSV, csv_records(Sale)),
}


def read(
    folder: Path, file_format: FileFormat[Sale], letters: CollectSink[Any] | None = None, **options: Any
) -> list[Sale]:
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[1 << 13]))
    found = CollectSink[Sale]()
    sales = env.from_source(FilesSource(folder, file_format)).with_uid("in")
    if letters is not None:
        sales.with_error_policy(ErrorPolicy().dead_letter())
        sales.dead_letters(object).to_sink(letters)
    sales.to_sink(found)
    env.execute("read", **options)
    return found.results


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", FORMATS)
def test_records_are_those_of_the_text(tmp_path: Path, name: str, codec: str) -> None:
    data, file_format = FORMATS[name]
    (tmp_path / f"1.{codec}").write_bytes(CODECS[codec](data))
    (tmp_path / f"2.{codec.upper()}").write_bytes(CODECS[codec](data))
    (tmp_path / "3.txt").write_bytes(data)
    assert read(tmp_path, file_format) == SALES * 3


@pytest.mark.parametrize("codec", CODECS)
def test_several_parts_in_a_file(tmp_path: Path, codec: str) -> None:
    parts = [JSON[:1_000], JSON[1_000:70_000], JSON[70_000:]]
    (tmp_path / f"1.{codec}").write_bytes(b"".join(map(CODECS[codec], parts)))
    assert read(tmp_path, json_records(Sale)) == SALES


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", FORMATS)
def test_errors_name_the_line(tmp_path: Path, name: str, codec: str) -> None:
    data, file_format = FORMATS[name]
    for file, changed in ((f"1.{codec}", CODECS[codec]), ("2.txt", bytes)):
        (tmp_path / file).write_bytes(changed(data.replace(b"2000", b"2x00", 1)))
    letters = CollectSink[Any]()
    assert read(tmp_path, file_format, letters) == [sale for sale in SALES if sale.amount != 2_000] * 2
    first, second = (letter.position for letter in letters.results)
    assert (first.split, second.split) == (f"1.{codec}", "2.txt")
    assert first.offset == second.offset == (2_002 if "csv" in name else 2_001)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", ["json", "csv"])
@pytest.mark.parametrize("damage", ["cut", "changed", "other"])
def test_damage_follows_the_error_policy(tmp_path: Path, name: str, codec: str, damage: str) -> None:
    data, file_format = FORMATS[name]
    packed = CODECS[codec](data)
    middle = len(packed) // 2
    changed = {"cut": packed[:middle], "changed": packed[:middle] + b"\0" * 50 + packed[middle + 50 :], "other": data}
    (tmp_path / f"1.{codec}").write_bytes(changed[damage])
    (tmp_path / "2.txt").write_bytes(data)
    letters = CollectSink[Any]()
    found = read(tmp_path, file_format, letters)
    assert found[-len(SALES) :] == SALES
    *_, letter = letters.results
    assert letter.record == str(tmp_path / f"1.{codec}")
    assert "is damaged, so that a part of it cannot be read" in letter.error_message
    with pytest.raises(UserFunctionError) as caught:
        read(tmp_path, file_format)
    if damage == "changed":  # which a checksum shows after some wrong lines
        return
    assert found[: -len(SALES)] == SALES[: len(found) - len(SALES)]
    assert "is damaged, so that a part of it cannot be read" in str(caught.value)
    assert (position := caught.value.position) is not None
    assert read(tmp_path, file_format, skip_records={"in": [(position.split, position.offset)]}) == found
