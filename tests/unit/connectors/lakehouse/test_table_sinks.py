"""The sinks of lakehouse tables: each micro-batch is committed once, and values stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
import pytest

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment
from dsv2.connectors.lakehouse.sink import ConflictError, LakehouseSink
from dsv2.errors import ConfigurationError, JobError, SchemaError
from dsv2.local import LocalRuntime
from dsv2.model.record_batch import RecordBatch
from dsv2.sinks import SinkInfo, SinkRunInfo
from dsv2.sources import DataGeneratorSource
from tests.lakehouse_tables import DeltaOnDisk, IcebergOnDisk, TableOnDisk


class Sale(NamedTuple):
    item: str
    amount: int
    note: str | None = None


class AllTypes(NamedTuple):
    flag: bool
    number: int
    real: float
    text: str
    data: bytes
    day: date
    at: datetime
    exact: Decimal
    many: list[int | None]
    by_name: dict[str, float]
    nothing: str | None


class CrashError(Exception):
    pass


FIRST = SinkInfo("job", "sales", 1, SinkRunInfo("run 1", 0))


def written(sink: LakehouseSink[Any], records: Sequence[Any], batch_id: int = 0, info: SinkInfo = FIRST) -> None:
    """Write a micro-batch as a run does that begins with it."""
    sink.begin(info, batch_id)
    sink.write(info, [RecordBatch(list(records))] if records else [], batch_id)


def sorted_rows(on_disk: TableOnDisk) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in on_disk.rows())


def test_values_stay_as_they_are(on_disk: TableOnDisk) -> None:
    berlin = timezone(timedelta(hours=1))
    row = AllTypes(
        True, -(1 << 62), 0.1, "ä\n\0", b"\xff\0", date(1, 1, 1), datetime(2024, 1, 1, 1, 0, 0, 123456, berlin),
        Decimal("-123456789012345678.000000000000000001"), [1, None], {"a": 1.5}, None,
    )  # fmt: skip
    other = AllTypes(
        False, 0, float("inf"), "", b"", date(9999, 12, 31), datetime(1969, 12, 31, tzinfo=UTC), Decimal(0), [], {}, ""
    )
    written(on_disk.sink(AllTypes), [row, other])
    assert sorted(on_disk.rows(), key=lambda found: not found["flag"]) == [row._asdict(), other._asdict()]
    written(on_disk.sink(AllTypes, compact_every=1), [other], 1)
    assert len(on_disk.files()) == 1
    assert sorted(on_disk.rows(), key=lambda found: not found["flag"]) == [row._asdict(), *[other._asdict()] * 2]


def test_local_time_and_all_sizes_of_numbers(on_disk: TableOnDisk) -> None:
    kinds = "a byte, b short, c int, d bigint, e float, f double, g timestamp_ntz, h struct<x: int, y: array<string>>"
    row = (1, 2, 3, 4, 0.5, 0.25, datetime(2024, 7, 1, 12), {"x": 1, "y": ["z"]})
    written(on_disk.sink(kinds), [row])
    written(on_disk.sink(kinds), [row], 1)
    assert [tuple(found.values()) for found in on_disk.rows()] == [row, row]


@pytest.mark.parametrize("crash", ["before", "after", "never"])
@pytest.mark.parametrize("key", [(), ("item",)])
def test_micro_batch_that_is_repeated_is_written_once(
    on_disk: TableOnDisk, crash: str, key: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch_id in range(4):
        records = [Sale(f"item {batch_id}", batch_id)] if batch_id != 2 else []
        sink = on_disk.sink(Sale, key=key)
        sink.begin(FIRST, batch_id)
        with monkeypatch.context() as patch:
            _crash(patch, sink, crash)
            try:
                sink.write(FIRST, [RecordBatch(records)] if records else [], batch_id)
            except CrashError:
                assert records
        written(on_disk.sink(Sale, key=key), records, batch_id)
    assert sorted_rows(on_disk) == [(f"item {number}", number, None) for number in (0, 1, 3)]


def _crash(patch: pytest.MonkeyPatch, sink: LakehouseSink[Any], when: str) -> None:
    commit = sink._table.commit

    def crashing(*arguments: Any) -> None:
        if when == "before":
            raise CrashError
        commit(*arguments)
        if when == "after":
            raise CrashError

    patch.setattr(sink._table, "commit", crashing)


@pytest.mark.parametrize("crash", ["before", "after"])
def test_job_continues_after_a_crash(
    on_disk: TableOnDisk, crash: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(sink: LakehouseSink[Any]) -> None:
        env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[10]))
        sales = (
            env.from_source(DataGeneratorSource(lambda index: index, count=26))
            .with_uid("in")
            .map(lambda number: Sale(f"item {number}", number))
            .with_uid("made")
        )
        sales.to_sink(sink).with_uid("sales")
        env.execute("sales", checkpoint_location=tmp_path / "checkpoint")

    open_table = type(on_disk.sink(Sale)).open_table

    def opened(sink: LakehouseSink[Any]) -> Any:
        sink._table = open_table(sink)
        _crash(monkeypatch, sink, crash)
        return sink._table

    with monkeypatch.context() as patch:
        patch.setattr(type(on_disk.sink(Sale)), "open_table", opened)
        with pytest.raises(JobError, match="CrashError"):
            run(on_disk.sink(Sale))
    run(on_disk.sink(Sale))
    assert sorted_rows(on_disk) == sorted((f"item {number}", number, None) for number in range(26))


def test_jobs_and_sinks_of_one_table_are_independent(on_disk: TableOnDisk) -> None:
    for info in (FIRST, SinkInfo("job", "returns", 1), SinkInfo("another job", "sales", 1)):
        written(on_disk.sink(Sale), [Sale("a", 1)], 0, info)
    assert sorted_rows(on_disk) == [("a", 1, None)] * 3


def test_checkpoint_that_is_older_than_the_table_is_refused(on_disk: TableOnDisk) -> None:
    for batch_id in range(3):
        written(on_disk.sink(Sale), [Sale("a", batch_id)], batch_id)
    restored = SinkInfo("job", "sales", 1, SinkRunInfo("run 2", 1))
    with pytest.raises(JobError, match=r"already has micro-batch 2 .* which continues with micro-batch 1"):
        on_disk.sink(Sale).begin(restored, 1)
    retried = SinkInfo("job", "sales", 1, SinkRunInfo("run 2", 2, ("run 1",)))
    written(on_disk.sink(Sale), [Sale("a", 2)], 2, retried)
    written(on_disk.sink(Sale), [Sale("a", 3)], 3, retried)
    assert [row["amount"] for row in sorted(on_disk.rows(), key=lambda row: row["amount"])] == [0, 1, 2, 3]


@pytest.mark.parametrize("key", [(), ("item",)])
def test_other_writers_commit_at_the_same_time(
    on_disk: TableOnDisk, key: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(on_disk.sink(Sale, key=key), [Sale("a", 1)])
    sink = on_disk.sink(Sale, key=key)
    sink.begin(FIRST, 1)
    refresh, others = sink._table.refresh, iter([Sale("b", 2), Sale("c", 3)])

    def interrupted() -> None:
        refresh()
        if (other := next(others, None)) is not None:
            on_disk.append([other._asdict()])

    monkeypatch.setattr(sink._table, "refresh", interrupted)
    sink.write(FIRST, [RecordBatch([Sale("a", 4), Sale("d", 5)])], 1)
    found = [row[:2] for row in sorted_rows(on_disk)]
    assert found == [
        *([] if key else [("a", 1)]),
        ("a", 4),
        ("b", 2),
        *([("c", 3)] if ("c", 3) in found else []),
        ("d", 5),
    ]


def test_commit_that_always_conflicts_fails(on_disk: TableOnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = on_disk.sink(Sale)
    sink.begin(FIRST, 0)

    def conflicting(*arguments: Any) -> None:
        raise ConflictError

    monkeypatch.setattr(sink._table, "commit", conflicting)
    with pytest.raises(JobError, match="10 attempts to commit conflicted with other writers"):
        sink.write(FIRST, [RecordBatch([Sale("a", 1)])], 0)


def test_run_that_was_replaced_cannot_commit(on_disk: TableOnDisk) -> None:
    late = on_disk.sink(Sale)
    late.begin(FIRST, 0)
    new = SinkInfo("job", "sales", 1, SinkRunInfo("run 2", 0, ("run 1",)))
    written(on_disk.sink(Sale), [Sale("a", 1)], 0, new)
    written(on_disk.sink(Sale), [Sale("a", 2)], 1, new)
    with pytest.raises(JobError, match="from a run that is not in the checkpoint"):
        late.write(FIRST, [RecordBatch([Sale("a", 1)])], 0)
    assert sorted_rows(on_disk) == [("a", 1, None), ("a", 2, None)]


@pytest.mark.parametrize("key", [(), ("item",)])
def test_run_that_is_replaced_during_its_commit(
    on_disk: TableOnDisk, key: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(on_disk.sink(Sale, key=key), [Sale("a", 1)])
    late, other = on_disk.sink(Sale, key=key), on_disk.sink(Sale, key=key)
    late.begin(FIRST, 1)
    commit, others = late._table.commit, iter([Sale("b", 2)])

    def interrupted(*arguments: Any) -> None:
        for sale in others:
            written(other, [sale], 1)
        commit(*arguments)

    monkeypatch.setattr(late._table, "commit", interrupted)
    late.write(FIRST, [RecordBatch([Sale("b", 2)])], 1)
    assert sorted_rows(on_disk) == [("a", 1, None), ("b", 2, None)]
    assert on_disk.commits() == 2
    if isinstance(on_disk, IcebergOnDisk):
        assert on_disk.table().properties.keys() == {"dsv2.job/sales"}  # the table retries as before


class Event(NamedTuple):
    sale: Sale
    is_deletion: bool = False


def changing(on_disk: TableOnDisk, **options: Any) -> LakehouseSink[Any]:
    return on_disk.sink(
        Sale, key=["item"], row=lambda event: event.sale, deletes=lambda event: event.is_deletion, **options
    )


def test_rows_are_replaced_and_deleted_by_key(on_disk: TableOnDisk) -> None:
    gone = [Event(Sale(name, 0), True) for name in ("a", "c", "never there")]
    written(changing(on_disk), [Event(Sale("a", 1)), Event(Sale("b", 1)), Event(Sale("a", 2)), Event(Sale("c", 1))])
    assert sorted_rows(on_disk) == [("a", 2, None), ("b", 1, None), ("c", 1, None)]
    written(changing(on_disk), [*gone, Event(Sale("c", 3, "again")), Event(Sale("d", 1)), Event(Sale("d", 1), True)], 1)
    assert sorted_rows(on_disk) == [("b", 1, None), ("c", 3, "again")]
    written(changing(on_disk), gone, 2)
    assert sorted_rows(on_disk) == [("b", 1, None)]
    assert on_disk.commits() == 3


def test_deletion_needs_only_the_key(on_disk: TableOnDisk) -> None:
    written(changing(on_disk), [Event(Sale("a", 1))])
    written(changing(on_disk), [Event(Sale("a", None), True)], 1)  # type: ignore[arg-type]
    assert on_disk.rows() == []


def test_keys_of_several_columns(on_disk: TableOnDisk) -> None:
    kinds = "day date NOT NULL, at timestamp NOT NULL, `a b` decimal(10,2) NOT NULL, n int"
    first = (date(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC), Decimal("1.50"), 1)
    second = (*first[:2], Decimal("1.51"), 2)
    sink = on_disk.sink(kinds, key=["day", "at", "a b"])
    written(sink, [first, second])
    written(on_disk.sink(kinds, key=["day", "at", "a b"]), [(*first[:3], 3)], 1)
    assert sorted(tuple(row.values()) for row in on_disk.rows()) == [(*first[:3], 3), second]


def test_key_that_is_none_is_refused(on_disk: TableOnDisk) -> None:
    with pytest.raises(SchemaError, match="a record has None in the column 'note' of the key"):
        written(on_disk.sink(Sale, key=["note"]), [Sale("a", 1, None)])
    assert on_disk.rows() == []


def test_columns_are_compared_before_the_first_write(on_disk: TableOnDisk) -> None:
    written(on_disk.sink("item string NOT NULL, amount long NOT NULL, note string"), [Sale("a", 1)])
    for schema, message in (
        (
            "item string NOT NULL, amount double NOT NULL",
            "Column 'amount' is double in the sink, and long in the table",
        ),
        ("item string NOT NULL, amount string", "Column 'amount' is string in the sink, and long in the table"),
        ("item string NOT NULL, amount long", "Column 'amount' may be None in the sink, but not in the table"),
        ("item string NOT NULL", "does not write the column 'amount', which must not be null"),
        ("item string NOT NULL, amount long NOT NULL, more int", "The table has no column 'more'"),
    ):
        with pytest.raises(SchemaError, match=message):
            on_disk.sink(schema).begin(FIRST, 1)
    assert sorted_rows(on_disk) == [("a", 1, None)]


def test_columns_may_be_missing_or_added(on_disk: TableOnDisk) -> None:
    written(on_disk.sink(Sale), [Sale("a", 1, "x")])
    written(on_disk.sink("amount short NOT NULL, item string NOT NULL"), [(2, "b")], 1)
    more = "item string NOT NULL, more array<int> NOT NULL, amount long NOT NULL"
    written(on_disk.sink(more, merge_schema=True), [("c", [1], 3)], 2)
    written(on_disk.sink(Sale), [Sale("d", 4)], 3)
    assert sorted_rows(on_disk) == [
        ("a", 1, "x", None),
        ("b", 2, None, None),
        ("c", 3, None, [1]),
        ("d", 4, None, None),
    ]


def test_columns_that_are_not_written_keep_no_value_of_a_replaced_row(on_disk: TableOnDisk) -> None:
    written(on_disk.sink(Sale, key=["item"]), [Sale("a", 1, "x"), Sale("b", 1, "y")])
    written(on_disk.sink("item string NOT NULL, amount long NOT NULL", key=["item"]), [("a", 2)], 1)
    assert sorted_rows(on_disk) == [("a", 2, None), ("b", 1, "y")]


def test_partitions(on_disk: TableOnDisk) -> None:
    written(on_disk.sink(Sale, partition_by=["item"]), [Sale("a/b", 1), Sale("c", 2)])
    written(on_disk.sink(Sale, key=["amount"]), [Sale("d", 1)], 1)
    assert sorted_rows(on_disk) == [("c", 2, None), ("d", 1, None)]
    with pytest.raises(JobError, match="The table is partitioned by item, not by amount"):
        on_disk.sink(Sale, partition_by=["amount"]).begin(FIRST, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deletes": lambda record: False}, r"deletes rows by key\. Pass a key"),
        ({"key": "item"}, "key must be a list of different columns, not 'item'"),
        ({"key": ["item", "item"]}, "key must be a list of different columns"),
        ({"key": ["other"]}, "key names 'other', but the columns are item, amount, note"),
        ({"partition_by": ["other"]}, "partition_by names 'other'"),
    ],
)
def test_mistakes_are_found_when_the_sink_is_created(on_disk: TableOnDisk, options: Any, message: str) -> None:
    with pytest.raises((ConfigurationError, SchemaError), match=message):
        on_disk.sink(Sale, **options)
    with pytest.raises(SchemaError, match=r"key names 'real', which is double\. Rows cannot be found by it"):
        on_disk.sink("real double", key=["real"])


def test_error_policy_skips_records_that_do_not_fit(on_disk: TableOnDisk) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    letters = CollectSink[Any]()
    sales = env.from_collection([Sale("a", 1), Sale("b", "many"), Sale("c", 3)])  # type: ignore[arg-type]
    written_to = sales.to_sink(on_disk.sink(Sale)).with_uid("sales").with_error_policy(ErrorPolicy().dead_letter())
    written_to.dead_letters(Sale).to_sink(letters)
    env.execute("sales")
    assert sorted_rows(on_disk) == [("a", 1, None), ("c", 3, None)]
    assert [letter.record for letter in letters.results] == [Sale("b", "many")]  # type: ignore[arg-type]


def test_columns_are_written_without_rows(on_disk: TableOnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsv2.connectors.files.table_files.table_of", _refuse)
    env = ExecutionEnvironment.get_instance(runtime="local")
    sales = env.from_collection([Sale("a", 1), Sale("b", 2)]).map(lambda sale: sale)
    columns = sales.with_columns(Sale, Sale, amount=nw.col("amount"))
    columns.to_sink(on_disk.sink(Sale))
    env.execute("sales")
    assert sorted_rows(on_disk) == [("a", 1, None), ("b", 2, None)]


def _refuse(*arguments: Any) -> None:
    raise AssertionError("converted row by row")


def test_small_files_are_merged(on_disk: TableOnDisk) -> None:
    for batch_id in range(10):
        written(on_disk.sink(Sale, compact_every=4), [Sale("a", batch_id)], batch_id)
    assert sorted_rows(on_disk) == [("a", batch_id, None) for batch_id in range(10)]
    assert len(on_disk.files()) == 3  # one of eight micro-batches, and two


def test_files_of_a_partition_are_merged(iceberg: IcebergOnDisk) -> None:
    from pyiceberg.transforms import BucketTransform

    notes = [None, "None", "", "a/b, c", "a/b"]
    for batch_id in range(4):
        rows = [Sale("a", batch_id, note) for note in notes]
        written(iceberg.sink(Sale, partition_by=["note"], compact_every=4), rows, batch_id)
    assert len(iceberg.files()) == len(notes)
    with iceberg.table().update_spec() as update:
        update.add_field("amount", BucketTransform(4), "bucket")
    for batch_id in range(4, 8):
        written(iceberg.sink(Sale, compact_every=4), [Sale("a", 3, "a/b")] * 2, batch_id)
    assert len(iceberg.files()) == len(notes) + 1  # the files before have another partitioning
    assert len(iceberg.rows()) == 4 * len(notes) + 8
    assert len(iceberg.table().scan("note = 'a/b' and amount = 3").to_arrow()) == 9


def test_large_files_wait_for_others(iceberg: IcebergOnDisk) -> None:
    written(iceberg.sink(Sale), [Sale(f"{number:x}", number) for number in range(20_000)])
    large = iceberg.files()
    for batch_id in range(1, 9):
        written(iceberg.sink(Sale, compact_every=3), [Sale("a", batch_id)], batch_id)
    assert len(iceberg.files()) == 2
    assert {*large} < {*iceberg.files()}


def test_files_have_at_most_the_target_size(iceberg: IcebergOnDisk) -> None:
    properties = {"write.target-file-size-bytes": "60000"}
    for batch_id in range(6):
        rows = [Sale(sha256(b"%d %d" % (batch_id, number)).hexdigest(), number) for number in range(500)]
        written(iceberg.sink(Sale, compact_every=1, properties=properties), rows, batch_id)
    sizes = [task.file.file_size_in_bytes for task in iceberg.table().scan().plan_files()]
    assert len(sizes) == 2  # about 20 kB were written each time
    assert max(sizes) <= 60_000
    assert len(iceberg.rows()) == 3000


def test_merge_loses_to_another_writer(on_disk: TableOnDisk, caplog: pytest.LogCaptureFixture) -> None:
    """Rows are deleted while files are merged, so the merge is given up. The rows do not return."""
    written(on_disk.sink(Sale), [Sale("a", 0)], 0)
    sink = on_disk.sink(Sale, compact_every=2)
    open_table = sink.open_table

    def opened() -> Any:
        table = open_table()
        refresh, times = table.refresh, count()

        def refreshed() -> None:
            refresh()
            if next(times) == 1:  # before the merge
                on_disk.delete("amount = 0")

        table.refresh = refreshed  # type: ignore[method-assign]
        return table

    sink.open_table = opened  # type: ignore[method-assign]
    written(sink, [Sale("b", 1)], 1)
    assert sorted_rows(on_disk) == [("b", 1, None)]
    assert "were not merged: another writer has changed it." in caplog.text


def test_secrets_are_not_shown(delta: DeltaOnDisk) -> None:
    from dsv2.connectors.delta import DeltaSink

    options = {"AWS_SECRET_ACCESS_KEY": "hush", "azure_storage_account_key": "hush too"}
    sink = DeltaSink[Any]("s3://me:hush@bucket/table", Sale, storage_options=options)
    assert "hush" not in f"{sink} {sink.describe_target()} {sink._options}"


def test_secrets_of_a_catalog_are_not_in_errors(iceberg: IcebergOnDisk) -> None:
    from dsv2.connectors.iceberg import IcebergSink

    options = {"type": "sql", "uri": "nothing://me:hush@host/base", "credential": "hush"}
    sink = IcebergSink[Any]("a.b", Sale, catalog_options=options)
    with pytest.raises(JobError, match=r"Cannot open the table a\.b") as caught:
        sink.begin(FIRST, 0)
    shown = f"{caught.value} {caught.value.__cause__} {sink} {sink.describe_target()}"
    assert "hush" not in shown


def test_table_divided_by_expressions(iceberg: IcebergOnDisk) -> None:
    from pyiceberg.transforms import BucketTransform

    written(iceberg.sink(Sale), [Sale("a", 1)])
    with iceberg.table().update_spec() as update:
        update.add_field("amount", BucketTransform(4), "bucket")
    written(iceberg.sink(Sale), [Sale("b", 2)], 1)
    assert sorted_rows(iceberg) == [("a", 1, None), ("b", 2, None)]
    with pytest.raises(JobError, match="partitioned by other expressions, not by item"):
        iceberg.sink(Sale, partition_by=["item"]).begin(FIRST, 2)


@pytest.mark.parametrize("name", ["table", ".table", "shop."])
def test_name_of_an_iceberg_table(iceberg: IcebergOnDisk, name: str) -> None:
    from dsv2.connectors.iceberg import IcebergSink

    with pytest.raises(ConfigurationError, match=r"requires a table as namespace\.name"):
        IcebergSink(name, Sale)


Made = Callable[[], LakehouseSink[Any]]


@pytest.mark.parametrize(
    ("module", "create"),
    [("deltalake", "dsv2.connectors.delta:DeltaSink"), ("pyiceberg", "dsv2.connectors.iceberg:IcebergSink")],
)
def test_missing_library_is_named_with_its_extra(module: str, create: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import import_module

    package, name = create.split(":")
    monkeypatch.setattr("dsv2.checks.client_library.find_spec", lambda found: None if found == module else found)
    extra = package.rpartition(".")[2]
    with pytest.raises(ConfigurationError, match=rf'{name} requires {module}.*pip install "dsv2\[{extra}\]"'):
        getattr(import_module(package), name)("a.b", Sale)
