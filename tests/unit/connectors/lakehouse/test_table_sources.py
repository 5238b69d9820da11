"""The sources of lakehouse tables: each row is read once, across restarts, new versions and other parallelism."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment, Trigger
from dsv2.errors import ConfigurationError, JobError, SchemaError
from dsv2.local import LocalRuntime
from dsv2.sinks import ForeachBatchSink
from tests.lakehouse_tables import DeltaOnDisk, IcebergOnDisk, TableOnDisk
from tests.unit.connectors.lakehouse.test_table_sinks import Sale, written

SECOND = timedelta(seconds=1)


class AllTypes(NamedTuple):
    flag: bool
    number: int
    real: float
    text: str
    data: bytes
    day: date
    at: datetime
    exact: Decimal
    many: list[int]
    nothing: str | None


class Item(NamedTuple):
    amount: int
    item: str


def put(on_disk: TableOnDisk, *numbers: int, **options: Any) -> None:
    """Append a version with an item for each of ``numbers``."""
    written(on_disk.sink(Sale, **options), [Sale(f"item {number % 3}", number) for number in numbers], numbers[0])


def read(source: Any, parallelism: int = 1, checkpoint: Path | None = None, **options: Any) -> list[Any]:
    """Run a job over what is available, and return the records."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[1 << 30]))
    env.set_parallelism(parallelism)
    sink = CollectSink[Any]()
    env.from_source(source).with_uid("in").to_sink(sink).with_uid("out")
    env.execute("read", checkpoint_location=checkpoint, trigger=Trigger.available_now(), **options)
    return sink.results


def numbers_of(records: Sequence[Any]) -> list[int]:
    return sorted(record.amount for record in records)


def test_values_stay_as_they_are(on_disk: TableOnDisk) -> None:
    row = AllTypes(
        True, -(1 << 62), 0.1, "ä\n\0", b"\xff\0", date(1, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 123456, UTC),
        Decimal("-123456789012345678.000000000000000001"), [1], None,
    )  # fmt: skip
    other = AllTypes(False, 0, float("inf"), "", b"", date(9999, 12, 31), row.at, Decimal(0), [], "")
    written(on_disk.sink(AllTypes, partition_by=["flag", "day"]), [row, other])
    assert sorted(read(on_disk.source(AllTypes)), reverse=True) == [row, other]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("bytes_per_batch", [1, 3_000, None])
@pytest.mark.parametrize("starting", [None, 0, 2])
def test_each_row_is_read_once(
    on_disk: TableOnDisk, parallelism: int, bytes_per_batch: int | None, starting: int | None
) -> None:
    for first in range(0, 30, 10):
        put(on_disk, *range(first, first + 10), partition_by=["item"])
    version = None if starting is None else on_disk.versions()[starting]
    source = on_disk.source(Item, starting=version, bytes_per_batch=bytes_per_batch)
    assert numbers_of(read(source, parallelism)) == [*range(10 * (starting or 0), 30)]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_rows_of_later_versions_are_read_once(on_disk: TableOnDisk, parallelism: int, tmp_path: Path) -> None:
    def source() -> Any:
        return on_disk.source(Sale, discovery_interval=SECOND, bytes_per_batch=1)

    put(on_disk, 0, 1, 2)
    put(on_disk, 3, 4)
    assert numbers_of(read(source(), parallelism, tmp_path / "c")) == [0, 1, 2, 3, 4]
    assert read(source(), parallelism, tmp_path / "c") == []
    put(on_disk, 5)
    put(on_disk, 6, 7)
    assert numbers_of(read(source(), parallelism, tmp_path / "c")) == [5, 6, 7]
    put(on_disk, 8)
    assert numbers_of(read(source(), 3 - parallelism, tmp_path / "c")) == [8]


def test_bounded_source_does_not_see_later_versions(on_disk: TableOnDisk, tmp_path: Path) -> None:
    put(on_disk, *range(20), partition_by=["item"])

    def run(fails: bool) -> list[int]:
        seen: list[int] = []

        def note(records: Sequence[Sale], batch_id: int) -> None:
            seen.extend(record.amount for record in records)
            if fails and batch_id == 1:
                raise ValueError

        env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[1]))
        source = env.from_source(on_disk.source(Sale, bytes_per_batch=1)).with_uid("in")
        source.to_sink(ForeachBatchSink(note)).with_uid("out")
        if fails:
            with pytest.raises(JobError):
                env.execute("read", checkpoint_location=tmp_path / "c")
        else:
            env.execute("read", checkpoint_location=tmp_path / "c")
        return seen

    first = run(True)
    put(on_disk, 20)
    again = run(False)
    last = [number for number in first if number in again]  # the micro-batch that failed is written again
    assert sorted([*first, *again]) == sorted([*range(20), *last])
    assert 0 < len(last) < len(first)


def test_merged_files_add_no_rows(on_disk: TableOnDisk, tmp_path: Path) -> None:
    source = on_disk.source(Sale, discovery_interval=SECOND)
    put(on_disk, 0, 1)
    put(on_disk, 2)
    assert numbers_of(read(source, 1, tmp_path / "c")) == [0, 1, 2]
    put(on_disk, 3, compact_every=1)
    assert len(on_disk.files()) == 1
    put(on_disk, 4)
    assert numbers_of(read(source, 1, tmp_path / "c")) == [3, 4]
    assert numbers_of(read(on_disk.source(Sale))) == [0, 1, 2, 3, 4]


def test_changes_fail_or_are_left_out(on_disk: TableOnDisk, tmp_path: Path) -> None:
    put(on_disk, 0, 1, 2)
    first = on_disk.versions()[0]
    on_disk.delete("amount = 1")
    put(on_disk, 3)
    assert numbers_of(read(on_disk.source(Sale))) == [0, 2, 3]
    with pytest.raises(JobError, match=r"(deletes or updates|deletes or replaces) rows\. .* Pass skip_changes=True"):
        read(on_disk.source(Sale, starting=first))
    assert numbers_of(read(on_disk.source(Sale, starting=first, skip_changes=True))) == [0, 1, 2, 3]


def test_columns_that_were_added_are_null_in_older_rows(on_disk: TableOnDisk) -> None:
    written(on_disk.sink(Item), [Item(1, "a")])
    written(on_disk.sink(Sale, merge_schema=True), [Sale("b", 2, "new")], 1)
    assert sorted(read(on_disk.source(Sale))) == [Sale("a", 1), Sale("b", 2, "new")]
    assert sorted(read(on_disk.source(Item))) == [Item(1, "a"), Item(2, "b")]


def test_column_that_is_missing_is_named(on_disk: TableOnDisk) -> None:
    put(on_disk, 1)

    class Other(NamedTuple):
        amount: int
        price: float

    with pytest.raises((JobError, SchemaError), match=r"the table has no column 'price'\. It has item, amount, note"):
        read(on_disk.source(Other))


def test_rows_that_do_not_fit_follow_the_error_policy(on_disk: TableOnDisk) -> None:
    class Strict(NamedTuple):
        amount: int
        note: str

    written(on_disk.sink(Sale), [Sale("a", 1, "x"), Sale("b", 2), Sale("c", 3, "y")])
    env = ExecutionEnvironment.get_instance(runtime="local")
    sink, letters = CollectSink[Any](), CollectSink[Any]()
    rows = env.from_source(on_disk.source(Strict)).with_error_policy(ErrorPolicy().dead_letter())
    rows.to_sink(sink)
    rows.dead_letters(dict).to_sink(letters)
    env.execute("read")
    assert sorted(sink.results) == [Strict(1, "x"), Strict(3, "y")]
    (letter,) = letters.results
    assert letter.record == {"amount": 2, "note": None}
    assert str(letter.position).endswith(".parquet:2'")


def test_empty_table(on_disk: TableOnDisk, tmp_path: Path) -> None:
    on_disk.sink(Sale).open_table()
    assert read(on_disk.source(Sale)) == []
    source = on_disk.source(Sale, discovery_interval=SECOND)
    assert read(source, 2, tmp_path / "c") == []
    put(on_disk, 1, 2)
    assert numbers_of(read(source, 2, tmp_path / "c")) == [1, 2]


def test_delta_table_that_was_replaced(delta: DeltaOnDisk, tmp_path: Path) -> None:
    source = delta.source(Sale, discovery_interval=SECOND)
    for number in range(3):
        put(delta, number)
    read(source, 1, tmp_path / "c")
    shutil.rmtree(delta.path)
    put(delta, 9)
    with pytest.raises(JobError, match=r"ends with version 1, before position 3: it was replaced by another table"):
        read(source, 1, tmp_path / "c")


def test_iceberg_table_that_was_replaced(iceberg: IcebergOnDisk, tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    source = iceberg.source(Sale, discovery_interval=SECOND)
    put(iceberg, 1)
    read(source, 1, tmp_path / "c")
    load_catalog("default", **iceberg.options).drop_table(iceberg.name)
    put(iceberg, 9)
    with pytest.raises(JobError, match=r"has no snapshot \d+ any more\. It expired, or the table was rolled back"):
        read(source, 1, tmp_path / "c")


def test_snapshots_that_expired(iceberg: IcebergOnDisk, tmp_path: Path) -> None:
    source = iceberg.source(Sale, discovery_interval=SECOND)
    put(iceberg, 1)
    read(source, 1, tmp_path / "c")
    put(iceberg, 2)
    first, second = iceberg.versions()
    put(iceberg, 3)
    iceberg.table().maintenance.expire_snapshots().by_id(first).commit()
    assert numbers_of(read(iceberg.source(Sale, starting=second))) == [2, 3]
    with pytest.raises(JobError, match=rf"has no snapshot {first} any more"):
        read(source, 1, tmp_path / "c")


def test_file_that_was_vacuumed(delta: DeltaOnDisk) -> None:
    put(delta, 1)
    for file in Path(delta.path).glob("*.parquet"):
        file.unlink()
    with pytest.raises(JobError, match=r"has no file part-.*\.parquet any more\. The table was vacuumed before"):
        read(delta.source(Sale))


def test_log_that_was_cleaned_up(delta: DeltaOnDisk) -> None:
    from deltalake import DeltaTable

    for number in range(3):
        put(delta, number)
    DeltaTable(delta.path).create_checkpoint()
    (Path(delta.path) / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(JobError, match=r"The log of .* has no version 1 any more\. It was cleaned up"):
        read(delta.source(Sale, starting=1))


def test_table_that_does_not_exist(on_disk: TableOnDisk) -> None:
    with pytest.raises(JobError, match="Cannot open the table"):
        read(on_disk.source(Sale))


def test_mistakes_are_found_when_the_source_is_created(on_disk: TableOnDisk) -> None:
    with pytest.raises(ConfigurationError, match="bytes_per_batch must be a whole number of at least 1, not 0"):
        on_disk.source(Sale, bytes_per_batch=0)
    with pytest.raises(ConfigurationError, match="starting_version must be a whole number of at least 0, not -1"):
        on_disk.source(Sale, starting=-1)
    with pytest.raises(SchemaError):
        on_disk.source(int)


def test_rows_are_columns(on_disk: TableOnDisk) -> None:
    put(on_disk, 1)
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.from_source(on_disk.source(Sale)).to_sink(on_disk.sink(Sale))
    assert str(env.explain()).count("moves columns") == 2
