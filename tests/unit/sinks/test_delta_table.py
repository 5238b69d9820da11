"""The sink for Delta tables in the documentation is exactly-once: it is interrupted before and after each write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsv2.model.record_batch import RecordBatch
from dsv2.sinks import SinkInfo
from tests.documents import running_program

pytest.importorskip("deltalake")


class CrashError(Exception):
    pass


@pytest.fixture
def document(capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    with running_program("docs/files.md") as module:
        yield module


@pytest.mark.parametrize("crash", ["before", "after", "never"])
def test_repeated_micro_batch_is_written_once(document: Any, tmp_path: Path, crash: str) -> None:
    write = document.write_deltalake
    info = SinkInfo("job", "sales", 1)

    def crashing(*arguments: Any, **options: Any) -> None:
        if crash == "before":
            raise CrashError
        write(*arguments, **options)
        if crash == "after":
            raise CrashError

    def run(batch_id: int, job: SinkInfo = info) -> None:
        sales = [document.Sale("monday", batch_id)] if batch_id != 2 else []
        document.DeltaSink(str(tmp_path)).write(job, [RecordBatch(sales)] if sales else [], batch_id)

    for batch_id in range(5):
        document.write_deltalake = crashing
        try:
            run(batch_id)
        except CrashError:
            document.write_deltalake = write
            run(batch_id)
        run(batch_id)
    table = document.DeltaTable(str(tmp_path))
    assert sorted(record_amounts(table)) == [0, 1, 3, 4]
    document.write_deltalake = write
    run(0, SinkInfo("another job", "sales", 1))  # its micro-batches are its own
    assert sorted(record_amounts(document.DeltaTable(str(tmp_path)))) == [0, 0, 1, 3, 4]


def record_amounts(table: Any) -> list[int]:
    import pyarrow.parquet as pq

    return [amount for file in table.file_uris() for amount in pq.read_table(file)["amount"].to_pylist()]
