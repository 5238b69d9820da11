"""Output of sinks: all kinds in one job, invalid records, repeated batches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dsv2 import JobError, RuntimeExecutionMode
from dsv2.connectors.files import WrittenFiles, read_files
from dsv2.errors import ConfigurationError, SchemaError
from dsv2.sinks import CollectSink, FileSink, ForeachBatchSink, PrintSink, Sink
from tests.awkward_files import NESTED, RECORDS, TEXTS, Awkward, AwkwardNested, as_text
from tests.profiles import nightly
from tests.spark.programs import environment
from tests.support import local_environment

BATCH, STREAMING = RuntimeExecutionMode.BATCH, RuntimeExecutionMode.STREAMING
START = datetime(2024, 7, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Event:
    number: int
    at: datetime
    note: str | None
    tags: list[str]


class Pair(NamedTuple):
    name: str
    number: int


class Color(Enum):
    RED = 1


class Colored(NamedTuple):
    color: Color


class UnknownSink(Sink[Any]):
    pass


def event(number: int) -> Event:
    return Event(number, START + timedelta(hours=number), None if number % 2 else "even", ["t"] * (number % 3))


def pair(number: int) -> Pair:
    return Pair(f"n{number}", number)


def text_of(number: int) -> str:
    return f'a, "quoted" {number}'


def read(folder: Path) -> list[dict[str, Any]]:
    """All records of a file sink, with their micro-batch, by number."""
    rows = []
    for batch in range(read_files(folder).position + 1):
        table = WrittenFiles(str(folder), batch - 1, batch).to_arrow()
        rows += [row | {"batch_id": batch} for row in table.to_pylist()]
    return sorted(rows, key=lambda row: int(row["number"]))


def data_files(folder: Path) -> list[Path]:
    """The files that readers see who list the folder."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [file for file in files if not any(part[0] in "._" for part in file.relative_to(folder).parts)]


def test_sinks_of_all_kinds_in_one_job(
    spark: SparkSession, checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches: list[tuple[int, list[int]]] = []
    collected, keyed, together = CollectSink[int](), CollectSink[int](), CollectSink[int]()
    env = environment(spark, 2)
    # 3 micro-batches of 10 numbers. The second one has no records for the sinks.
    numbers = env.from_collection(range(30), records_per_batch=10).filter(lambda n: not 10 <= n < 20)
    numbers.map(event).to_sink(FileSink(tmp_path / "events", schema=Event))
    numbers.map(pair).to_sink(FileSink(f"{tmp_path}/pairs/", format="json", schema=Pair))
    numbers.map(lambda n: (n, text_of(n))).to_sink(
        FileSink(f"{tmp_path}/csv", format="csv", schema="n int, text string")
    )
    numbers.map(lambda n: {"counts": {"c": n}, "number": n}).to_sink(
        FileSink(f"{tmp_path}/dicts", schema="number long not null, counts map<string, long>")
    )
    numbers.to_sink(ForeachBatchSink(lambda records, batch_id: batches.append((batch_id, sorted(records)))))
    numbers.to_sink(PrintSink("number", format=lambda n: f"<{n}>"))
    numbers.to_sink(collected)
    numbers.key_by(lambda n: n % 3).to_sink(keyed)
    numbers.global_().to_sink(together)
    capsys.readouterr()
    env.execute("sinks", checkpoint_location=checkpoint)

    expected = [*range(10), *range(20, 30)]
    assert sorted(collected.results) == sorted(keyed.results) == sorted(together.results) == expected
    assert batches == [(0, [*range(10)]), (1, []), (2, [*range(20, 30)])]
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("number>")]
    assert sorted(printed) == sorted(f"number> <{n}>" for n in expected)

    in_batch = {n: {"batch_id": n // 10} for n in expected}
    assert read(tmp_path / "events") == [vars(event(n)) | in_batch[n] for n in expected]
    pairs = spark.read.json(f"{tmp_path}/pairs").collect()
    assert sorted((row.asDict() for row in pairs), key=lambda row: row["number"]) == [
        pair(n)._asdict() for n in expected
    ]
    assert read(tmp_path / "dicts") == [{"number": n, "counts": [("c", n)]} | in_batch[n] for n in expected]
    csv = spark.read.csv(f"{tmp_path}/csv", schema="n int, text string", quote='"', escape="\\")
    assert sorted(map(tuple, csv.collect())) == [(n, text_of(n)) for n in expected]
    # Other readers see the same, and no file that is empty, on which they would fail.
    for name, file_format in (("events", "parquet"), ("pairs", "json"), ("csv", "csv")):
        files = data_files(tmp_path / name)
        assert {int(file.name.partition("-")[0]) for file in files} == {0, 2}
        assert pads.dataset(f"{tmp_path}/{name}", format=file_format).count_rows() >= len(expected) - len(files)


class Wrong:
    """Creates a pair, or something else for the number ``bad``."""

    def __init__(self, bad: int | None) -> None:
        self.bad = bad

    def __call__(self, number: int) -> Any:
        return pair(number) if number != self.bad else Pair("bad", None)  # type: ignore[arg-type]


def test_invalid_record_fails_the_job_and_repeats_its_batch(
    spark: SparkSession, checkpoint: str, tmp_path: Path
) -> None:
    good, strict = tmp_path / "good", tmp_path / "strict"

    def run(bad: int | None) -> None:
        env = environment(spark, 2)
        pairs = env.from_collection(range(40), records_per_batch=20).map(Wrong(bad)).with_uid("make")
        pairs.to_sink(FileSink(str(good), schema="name string, number long"))
        pairs.to_sink(FileSink(str(strict), schema=Pair)).with_name("Strict").with_uid("strict")
        env.execute("pairs", checkpoint_location=checkpoint)

    with pytest.raises(SchemaError) as failed:
        run(bad=33)
    text = str(failed.value)
    assert text.startswith(f"The sink Strict (uid 'strict'), defined at {__file__}:")
    assert "record Pair(name='bad', number=None) does not fit the schema name string, number long" in text
    assert "field 'number' must not be None" in text
    # Nothing of the failed micro-batch is present, and everything of the previous one is.
    assert read(strict) == [pair(n)._asdict() | {"batch_id": 0} for n in range(20)]
    assert all(file.name.startswith("0000000000-") for folder in (good, strict) for file in data_files(folder))
    # The first sink has written its micro-batch, but readers do not see it before the checkpoint has it.
    assert read(good) == read(strict)
    assert list(good.glob("_dsv2/data/1-*/_SUCCESS"))

    run(bad=None)
    for folder in (good, strict):
        assert read(folder) == [pair(n)._asdict() | {"batch_id": n // 20} for n in range(40)]


class Visit(NamedTuple):
    number: int
    day: date | None
    page: str


def visit(number: int) -> Visit:
    return Visit(number, None if number % 7 == 0 else date(2024, 7, 1 + number % 2), "a/b: é=%" if number % 3 else "x")


class Visitor:
    """Makes a visit, or fails for the number ``bad``."""

    def __init__(self, bad: int | None) -> None:
        self.bad = bad

    def __call__(self, number: int) -> Visit:
        if number == self.bad:
            raise ValueError("no such visit")
        return visit(number)


@pytest.mark.parametrize("file_format", ["parquet", *nightly("json", "csv")])
def test_small_files_become_one_per_partition(
    spark: SparkSession, checkpoint: str, tmp_path: Path, file_format: Literal["parquet", "json", "csv"]
) -> None:
    folder = tmp_path / "visits"

    def run(bad: int | None) -> None:
        env = environment(spark, 2)
        visits = env.from_collection(range(60), records_per_batch=15).map(Visitor(bad)).with_uid("visit")
        sink = FileSink(folder, format=file_format, schema=Visit, partition_by=["day", "page"], roll_bytes=10**9)
        visits.to_sink(sink).with_uid("visits")
        env.execute("visits", checkpoint_location=checkpoint)

    with pytest.raises(JobError):
        run(bad=50)
    # Three micro-batches are complete but not merged, so only readers of the log see them.
    assert read_files(folder).position == 2
    assert data_files(folder) == []
    assert read(folder) == [visit(n)._asdict() | {"batch_id": n // 15} for n in range(45)]

    run(bad=None)
    assert len(data_files(folder)) == len({(visit(n).day, visit(n).page) for n in range(60)}) == 6
    assert {file.suffix for file in data_files(folder)} == {f".{file_format}"}
    assert read(folder) == [visit(n)._asdict() | {"batch_id": n // 15} for n in range(60)]
    reader = spark.read.schema("number long, day date, page string").format(file_format)
    assert sorted(tuple(row) for row in reader.load(str(folder)).collect()) == [tuple(visit(n)) for n in range(60)]


def test_files_have_the_bytes_that_the_local_runtime_writes(spark: SparkSession, tmp_path: Path) -> None:
    folders = [{"n": n, "text": text, "no": n} for n, text in enumerate([*TEXTS[1:-1], None]) if text != "\0"]
    cases: dict[str, tuple[Any, list[Any], Any, list[str]]] = {}
    for file_format in ("parquet", "json", "csv"):
        cases[f"flat {file_format}"] = file_format, RECORDS, Awkward, []
        cases[f"folders {file_format}"] = file_format, folders, "n int, text string, no bigint", ["text", "n"]
        if file_format != "csv":
            cases[f"nested {file_format}"] = file_format, NESTED, AwkwardNested, []
    for runtime, env in (("spark", environment(spark)), ("local", local_environment())):
        env.set_execution_mode(BATCH)
        for name, (file_format, records, schema, partition_by) in cases.items():
            sink = FileSink(tmp_path / runtime / name, format=file_format, schema=schema, partition_by=partition_by)
            env.from_collection(records).to_sink(sink).with_uid(name)
        env.execute("files")

    def content(path: Path, file_format: str) -> dict[str, bytes]:
        """The content of the folders below ``path``. Parquet has other bytes in each file."""
        assert {file.suffix for file in data_files(path)} == {f".{file_format}"}
        found: dict[str, bytes] = {}
        for file in sorted(data_files(path)):
            if file_format == "parquet":
                assert "INT96" not in {column.physical_type for column in pq.ParquetFile(file).schema}
            folder = str(file.parent.relative_to(path))
            found[folder] = found.get(folder, b"") + (b"" if file_format == "parquet" else file.read_bytes())
        return found

    for name, (file_format, records, _, _) in cases.items():
        wanted = sorted(as_text(record if isinstance(record, dict) else vars(record)) for record in records)
        for runtime in ("spark", "local"):
            rows = read_files(tmp_path / runtime / name).to_arrow().to_pylist()
            assert sorted(map(as_text, rows)) == wanted, (runtime, name)
        assert content(tmp_path / "spark" / name, file_format) == content(tmp_path / "local" / name, file_format), name


def test_output_of_another_run_is_not_touched(spark: SparkSession, checkpoint: str, tmp_path: Path) -> None:
    (tmp_path / "day=7").mkdir()
    (tmp_path / "day=7" / "part-00000.parquet").write_bytes(b"records")
    env = environment(spark)
    env.from_collection([1]).map(pair).to_sink(FileSink(str(tmp_path), schema=Pair)).with_name("Pairs").with_uid("out")
    with pytest.raises(ConfigurationError) as refused:
        env.execute("again", checkpoint_location=checkpoint)
    assert str(refused.value).startswith(f"The sink Pairs (uid 'out'), defined at {__file__}:")
    assert not Path(checkpoint).exists()


def test_unwritable_folder_is_refused_before_the_start(spark: SparkSession, checkpoint: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    env = environment(spark)
    env.from_collection([1]).map(pair).to_sink(FileSink(tmp_path / "file" / "out", schema=Pair)).with_uid("out")
    with pytest.raises(ConfigurationError, match=r"The sink Sink \(uid 'out'\), .*Not a directory"):
        env.execute("nowhere", checkpoint_location=checkpoint)
    assert not Path(checkpoint).exists()

    env = environment(spark, mode=BATCH)
    env.from_collection([1]).map(pair).to_sink(FileSink("nothing://bucket/out", schema=Pair)).with_name(
        "Pairs"
    ).with_uid("out")
    with pytest.raises(ConfigurationError) as refused:
        env.execute("nowhere")
    text = str(refused.value)
    assert text.startswith(f"The sink Pairs (uid 'out'), defined at {__file__}:")
    assert "nothing://bucket/out cannot be used: org.apache.hadoop.fs.UnsupportedFileSystemException: No File" in text


@pytest.mark.parametrize("mode", [BATCH, STREAMING])
def test_invalid_sink_is_refused_before_the_start(
    spark: SparkSession, checkpoint: str, tmp_path: Path, mode: RuntimeExecutionMode
) -> None:
    path = str(tmp_path)
    for sink, error, message in (
        (FileSink[Any](path, schema=Colored), SchemaError, "Field 'color' of Colored has type <enum 'Color'>"),
        (FileSink[Any](path, schema="n lon"), SchemaError, "'n lon' is not a schema"),
        (FileSink[Any](path, schema="int"), SchemaError, "'int' is not a schema of columns but int."),
        (FileSink[Any](path, schema=Pair, partition_by=["day"]), SchemaError, "partition_by names 'day', but the col"),
        (UnknownSink(), ConfigurationError, "has a type that the Spark runtime does not support."),
    ):
        env = environment(spark, mode=mode)
        env.from_collection([1]).to_sink(sink).with_uid("sink")
        with pytest.raises(error) as refused:
            env.execute(checkpoint_location=None if mode is BATCH else checkpoint)
        assert str(refused.value).startswith(f"The sink Sink (uid 'sink'), defined at {__file__}:")
        assert message in str(refused.value)
