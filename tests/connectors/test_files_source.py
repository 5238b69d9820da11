"""Files of a directory as a source."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dsv2 import Collector, ExecutionEnvironment, NonPartitionedContext, RuntimeExecutionMode
from dsv2.connectors.files import FileFormat, FilesSource, LocalFile, csv_rows, json_lines, parquet_rows, text_lines
from dsv2.errors import ConfigurationError, JobError, UserFunctionError
from dsv2.extension.event_time import EventTimeExtension, OneInputEventTimeStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.runtime.sources.offsets import BEFORE_START, SourceOffset
from dsv2.sinks import CollectSink
from dsv2.sources import SplitBatch
from dsv2.testing import ManualClock
from dsv2.testing.connectors.source_run import SourceRun
from tests.durations import ms


class Sale(NamedTuple):
    place: str
    price: int


SALES = [
    Sale(place, price) for price, place in enumerate(("Basel", "Köln", 'a "b", c', "two\nlines", "")) for _ in range(3)
]


def write(format_name: str, file: Path, sales: Sequence[Sale]) -> None:
    rows = [sale._asdict() for sale in sales]
    if format_name == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=2)
    elif format_name == "csv":
        with file.open("w", encoding="utf-8", newline="") as opened:
            writer = csv.DictWriter(opened, Sale._fields, delimiter=";")
            writer.writeheader()
            writer.writerows(rows)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def sale(row: dict[str, Any]) -> Sale:
    return Sale(row["place"], int(row["price"]))


FORMATS: dict[str, FileFormat[Sale]] = {
    "json": json_lines(sale),
    "csv": csv_rows(sale, delimiter=";"),
    "parquet": parquet_rows(sale),
}


def read(source: FilesSource[Any], parallelism: int = 2, mode: Any = RuntimeExecutionMode.STREAMING) -> list[Any]:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    env.set_parallelism(parallelism)
    env.set_execution_mode(mode)
    sink = CollectSink[Any]()
    env.from_source(source).to_sink(sink)
    env.execute()
    return sink.results


@pytest.mark.parametrize("limits", [(None, None), (60, None), (None, 2)])
@pytest.mark.parametrize("name", FORMATS)
def test_every_record_of_every_file_is_read_once(
    name: str, limits: tuple[int | None, int | None], tmp_path: Path
) -> None:
    for number in range(5):
        write(name, tmp_path / f"{number}.{name}", SALES[: 3 * number])
    source = FilesSource(tmp_path, FORMATS[name], bytes_per_batch=limits[0], files_per_batch=limits[1])
    expected = sorted(sale for number in range(5) for sale in SALES[: 3 * number])
    assert sorted(read(source)) == expected
    assert sorted(read(source, mode=RuntimeExecutionMode.BATCH)) == expected


LINES = st.lists(
    st.text(st.characters(exclude_characters="\r\n\x85\u2028\u2029\ufeff", codec="utf-8"), max_size=8), max_size=12
)


@example(["12", "3"], [1], "\n", True)  # after the first byte
@given(LINES, st.lists(st.integers(0, 60)), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_lines_are_the_same_wherever_a_file_is_split(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], cuts: list[int], end: str, ends: bool
) -> None:
    text = end.join(lines) + (end if ends else "")
    file = tmp_path_factory.mktemp("cut") / "file"
    file.write_bytes(text.encode())
    size = file.stat().st_size
    places = sorted({0, size, *(cut for cut in cuts if cut < size)})
    batches = [
        batch for start, stop in pairwise(places) for batch in text_lines(str).read(LocalFile(str(file)), start, stop)
    ]
    found = [line for batch in batches for line in batch.records]
    expected = [(number, line) for number, line in enumerate(text.split(end), 1) if line]
    assert found == [line for _, line in expected]
    assert [number for batch in batches for number in offsets_of(batch)] == [number for number, _ in expected]


def test_long_file_is_read_in_batches(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("".join(f"{number:09}\n" for number in range(300_000)))
    batches = list(text_lines(int).read(LocalFile(str(tmp_path / "long")), 5, 2_900_000))
    assert [number for batch in batches for number in batch.records] == list(range(1, 290_000))
    assert [offset for batch in batches for offset in offsets_of(batch)] == list(range(2, 290_001))
    assert len(batches) == 3


def test_parquet_is_split_between_row_groups(tmp_path: Path) -> None:
    file = tmp_path / "sales.parquet"
    write("parquet", file, SALES)
    places = parquet_rows(lambda row: row["place"], columns=["place"])
    sales = LocalFile(str(file))
    end, position, found = places.end(sales), 0, []
    while position < end:
        stop = places.stop(sales, position, end, 1)
        found.append([place for some in places.read(sales, position, stop) for place in some.records])
        position = stop
    assert found == [[sale.place for sale in SALES[first : first + 2]] for first in range(0, len(SALES), 2)]
    assert places.stop(sales, 0, end, end) == end


class Run(SourceRun):
    """A run of a job that consists of a ``FilesSource``. An hour passes before each micro-batch."""

    def __init__(self, source: FilesSource[Any], offset: SourceOffset = BEFORE_START) -> None:
        super().__init__(source, offset, 1, ManualClock(step=ms(3_600_000)))

    def planned(self) -> list[str]:
        """The splits of the next micro-batch."""
        if not self.plan_next(commits=False):
            return []
        return [f"{split.stop.name} {split.start.position}" for order in self.orders() for split in order.portions]


def test_files_are_assigned_in_order_within_the_limit(tmp_path: Path) -> None:
    for name in ("b", "a", "d", "c"):
        (tmp_path / name).write_text("12345\n" * 10)
    run = Run(FilesSource(tmp_path, text_lines(int), bytes_per_batch=90))
    assert [run.planned() for _ in range(4)] == [["a 0", "b 0"], ["a 45", "b 45", "c 0"], ["d 0"], []]
    run = Run(FilesSource(tmp_path, text_lines(int), files_per_batch=3))
    assert [run.planned() for _ in range(3)] == [["a 0", "b 0", "c 0"], ["d 0"], []]
    assert run.driver.ended


def test_new_files_are_found_and_old_ones_are_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("1\n")
    (tmp_path / ".hidden").write_text("1\n")
    (tmp_path / "_part").write_text("1\n")
    (tmp_path / "folder").mkdir()
    source = FilesSource(tmp_path, text_lines(int), discovery_interval=ms(1))
    run = Run(source)
    assert run.planned() == ["b 0"]
    (tmp_path / "a").write_text("1\n")
    assert run.planned() == ["a 0"]
    assert Run(source, run.offset).planned() == []
    (tmp_path / "c").write_text("1\n")
    (tmp_path / "b").unlink()
    again = Run(source, run.offset)
    assert again.planned() == ["c 0"]
    assert again.offset["enumerator"]["finished"] == ["a", "c"]


def test_patterns_match_in_subfolders(tmp_path: Path) -> None:
    (tmp_path / "day" / "_tmp").mkdir(parents=True)
    for name in ("x.json", "day/y.json", "day/z.txt", "day/_tmp/w.json"):
        (tmp_path / name).write_text("{}\n")
    assert Run(FilesSource(tmp_path, json_lines(dict), pattern="**/*.json")).planned() == ["day/y.json 0", "x.json 0"]


def hour_of(record: int) -> int:
    return record


class Times(OneInputEventTimeStreamProcessFunction[int, int]):
    def process_record(self, record: int, output: Collector[int], ctx: Any) -> None: ...

    def on_event_time_watermark(self, timestamp: int, output: Collector[int], ctx: NonPartitionedContext[int]) -> None:
        output.collect(timestamp)


def test_event_time_advances_from_file_to_file(tmp_path: Path) -> None:
    for day in range(4):
        (tmp_path / f"{day}").write_text("".join(f"{day * 10 + hour}\n" for hour in (3, 1, 7)))
    strategy = EventTimeExtension.new_watermark_generator_builder(hour_of)
    strategy.with_max_out_of_order_time(timedelta(milliseconds=2))
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    sink = CollectSink[int]()
    source = FilesSource(tmp_path, text_lines(int), files_per_batch=1)
    env.from_source(source, watermarks=strategy.build_as_watermark_strategy()).process(Times()).to_sink(sink)
    env.execute()
    assert sink.results == [4, 14, 24, 34, 2**63 - 1]


def offsets_of(batch: SplitBatch[Any]) -> Sequence[int | str]:
    """The line numbers of the records of ``batch``."""
    assert batch.offsets is not None
    return batch.offsets()


# --- Bad input --------------------------------------------------------------------------------------------------------


BAD = {
    "json": ('{"place": "a", "price": 1}\n\n{"place": 5\n', 3, "JSONDecodeError", """b'{"place": 5\\n'"""),
    "csv": ("place;price\na;1\nb;much\n", 3, "ValueError", "{'place': 'b', 'price': 'much'}"),
}


@pytest.mark.parametrize("name", BAD)
def test_undecodable_record_is_named_with_its_place(name: str, tmp_path: Path) -> None:
    text, offset, error, record = BAD[name]
    (tmp_path / "bad").write_text(text)
    with pytest.raises(UserFunctionError) as failed:
        read(FilesSource(tmp_path, FORMATS[name]))
    assert (failed.value.cause_type, failed.value.callback, failed.value.record) == (error, "decode", record)
    assert failed.value.position is not None
    assert (failed.value.position.split, failed.value.position.offset) == ("bad", offset)


@pytest.mark.parametrize("limit", [None, 1])
def test_undecodable_parquet_row_is_named(limit: int | None, tmp_path: Path) -> None:
    write("parquet", tmp_path / "bad", [*SALES[:4], Sale("x", -1)])
    source = FilesSource(
        tmp_path,
        parquet_rows(lambda row: [5][row["price"] if row["price"] < 0 else 0] / (row["price"] + 1)),
        bytes_per_batch=limit,
    )
    with pytest.raises(UserFunctionError, match="ZeroDivisionError") as failed:
        read(source)
    assert failed.value.position is not None
    assert failed.value.position.offset == 5


def test_missing_directory_or_file(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"The directory .*nowhere of a FilesSource does not exist"):
        Run(FilesSource(tmp_path / "nowhere", text_lines(str))).planned()
    for name in "ab":
        (tmp_path / name).write_text("1\n")
    run = Run(FilesSource(tmp_path, text_lines(str), files_per_batch=1))
    run.planned()
    (tmp_path / "b").unlink()
    with pytest.raises(JobError, match="b was removed before it was read"):
        run.planned()


def test_truncated_file_is_detected(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    with pytest.raises(JobError, match="a ends at byte 2, but it was longer"):
        list(text_lines(str).read(LocalFile(str(tmp_path / "a")), 0, 4))


def test_invalid_limits(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="bytes_per_batch or files_per_batch"):
        FilesSource(tmp_path, text_lines(str), bytes_per_batch=1, files_per_batch=1)
    with pytest.raises(ConfigurationError, match="files_per_batch must be a whole number of at least 1, not 0"):
        FilesSource(tmp_path, text_lines(str), files_per_batch=0)
