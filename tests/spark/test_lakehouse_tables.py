"""The sinks of lakehouse tables on Spark: a micro-batch that is repeated after a failure is committed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from dsv2 import JobError, RuntimeExecutionMode
from dsv2.connectors.lakehouse.sink import LakehouseSink
from tests.lakehouse_tables import FORMATS
from tests.spark.programs import environment


class Number(NamedTuple):
    n: int


class CrashError(Exception):
    pass


def run(spark: SparkSession, sink: LakehouseSink[Any], checkpoint: str) -> None:
    """12 numbers in 3 micro-batches."""
    env = environment(spark, 2, RuntimeExecutionMode.STREAMING)
    numbers = env.from_collection(range(12), records_per_batch=4).with_parallelism(1).map(Number).with_uid("made")
    numbers.to_sink(sink).with_uid("table").with_name("Table")
    env.execute("numbers", checkpoint_location=checkpoint)


@pytest.mark.parametrize("library", list(FORMATS))
@pytest.mark.parametrize("key", [(), ("n",)])
def test_micro_batch_is_committed_once(
    spark: SparkSession,
    checkpoint: str,
    tmp_path: Path,
    library: str,
    key: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip(library)
    table = FORMATS[library](tmp_path)
    sink = table.sink(Number, key=key)
    open_table = sink.open_table

    def opened() -> Any:
        opened = open_table()
        commit = opened.commit

        def crashing(changes: Any, key: Any, name: str, written: Any) -> None:
            commit(changes, key, name, written)
            if written.batch_id == 1:
                raise CrashError

        monkeypatch.setattr(opened, "commit", crashing)
        return opened

    monkeypatch.setattr(sink, "open_table", opened)
    with pytest.raises(JobError, match=r"The function of the sink Table .* raised on batch 1: CrashError"):
        run(spark, sink, checkpoint)
    assert sorted(row["n"] for row in table.rows()) == [*range(8)]
    run(spark, table.sink(Number, key=key), checkpoint)
    assert sorted(row["n"] for row in table.rows()) == [*range(12)]
    assert table.commits() == 3
