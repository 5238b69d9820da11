"""The state of running jobs on Spark, read by the client over HTTP as of the last committed micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from dsv2 import CollectSink, ExecutionEnvironment, JobHandle, Trigger
from dsv2.client import JobClient, connect
from dsv2.errors import ConfigurationError, JobError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.savepoint import Savepoint
from dsv2.state import StateDeclaration, StateDeclarations, StateTtl
from dsv2.views.dashboard import Dashboard
from dsv2.views.dashboard.server import server_of
from runtime_spark import SparkRuntime, StateKey, StateLayout
from runtime_spark.savepoint import live_state
from runtime_spark.savepoint.state_entries import state_entries
from tests.dashboard_client import TOKEN
from tests.durations import ms
from tests.spans import Item, SpansInFile, write_ends
from tests.spark.programs import persisted
from tests.support import wait_until

SETTINGS = Dashboard(0, token=TOKEN)


class Total(NamedTuple):
    times: int
    last: int


TOTAL = StateDeclarations.value_state("total", Total)
NUMBERS = StateDeclarations.list_state("numbers", int)
LIVES = StateDeclarations.value_state("lives", int, ttl=StateTtl(ms(10**9)))
SHARED = StateDeclarations.list_state_builder("shared", int).redistribute_by("split").build()


class Totals(OneInputStreamProcessFunction[Item, int]):
    def uses_states(self) -> Collection[StateDeclaration]:
        return [TOTAL, NUMBERS, LIVES, SHARED]

    def process_record(self, record: Item, output: Any, ctx: Any) -> None:
        total, numbers, lives, shared = map(ctx.state_manager.get_state, self.uses_states())
        before = total.value() or Total(0, 0)
        total.update(Total(before.times + 1, record.number))
        numbers.add(record.number)
        lives.update(record.number)
        shared.add(record.number)
        output.collect(record.number)


def key_of(item: Item) -> float:
    return item.number / 2


class Live:
    """A job that runs, and its input, which grows."""

    def __init__(self, file: Path, job: JobHandle) -> None:
        self._file = file
        self.job = job

    def client(self) -> JobClient:
        return connect(server_of(SETTINGS)[0].url)

    def extend(self, end: int) -> None:
        """Let the job read the numbers below ``end``, and wait until they are committed."""
        write_ends(self._file, {"a": end})
        totals = self.client().state("totals", TOTAL)
        wait_until(lambda: totals.get((end - 1) / 2) is not None)


@pytest.fixture
def new_job(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Live]]:
    started: list[JobHandle] = []

    def start(**options: Any) -> Live:
        file = tmp_path / "spans.json"
        write_ends(file, {"a": 8})
        env = ExecutionEnvironment.get_instance(SparkRuntime(spark, **options))
        env.set_parallelism(2)
        items = env.from_source(SpansInFile(str(file), discovery_interval=ms(20))).with_uid("items")
        totals = items.key_by(key_of).process(Totals()).with_uid("totals")
        totals.to_sink(CollectSink[int]()).with_uid("out")
        trigger = Trigger.processing_time(ms(50))
        place = tmp_path / "checkpoint"
        job = env.execute_async("live", checkpoint_location=place, trigger=trigger, dashboard=SETTINGS)
        started.append(job)
        return Live(file, job)

    yield start
    for job in started:
        job.stop()
    server_of(SETTINGS)[0].close()


def awaited(live: Live) -> None:
    """Wait for the first numbers. Until a micro-batch is complete, a request is refused."""

    def is_there() -> bool:
        try:
            return live.client().state("totals", TOTAL).get(3.5) is not None
        except JobError as error:
            if "has not completed a micro-batch since it started" not in str(error):
                raise
            return False

    wait_until(is_there)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="blob"),
        pytest.param(
            {"state_layout": StateLayout.MAP, "state_key": StateKey(b"k" * 32)}, id="map", marks=pytest.mark.nightly
        ),
    ],
)
def test_states_of_a_running_job(new_job: Callable[..., Live], tmp_path: Path, options: dict[str, Any]) -> None:
    live = new_job(**options)
    awaited(live)
    client = live.client()
    totals = client.state("totals", TOTAL).with_key_type(float)
    assert [one.state for one in client.states()] == ["lives", "numbers", "shared", "total"]
    assert (totals.get(2.5), totals.get(99.5), totals.get(-0.0)) == (Total(1, 5), None, Total(1, 0))
    assert client.state("totals", NUMBERS).get(3.5) == [7]
    assert client.state("totals", LIVES).get(3.0) == 6
    assert sorted(totals.items(start=1.0, stop=2.5)) == [(1.0, Total(1, 2)), (1.5, Total(1, 3)), (2.0, Total(1, 4))]
    found = client.sql(
        "SELECT sum(total.value.last) AS last, count(*) AS n FROM totals.total JOIN totals.lives USING (key)"
    )
    assert found.to_pylist() == [{"last": 28, "n": 8}]
    shared = client.state("totals", SHARED).table().to_pylist()
    assert sorted(number for row in shared for number in row["value"]) == list(range(8))
    before = int(totals.table().schema.metadata[b"batch_id"])
    live.extend(10)
    assert len(totals.items()) == 10
    assert int(totals.table().schema.metadata[b"batch_id"]) > before
    savepoint = Savepoint.open(live.job.savepoint(tmp_path / "savepoint"))
    for state in (TOTAL, NUMBERS, LIVES):
        expected, now = savepoint.state("totals", state.name).to_arrow(), client.state("totals", state).table()
        assert now.schema.equals(expected.schema)
        assert sorted(map(str, now.to_pylist())) == sorted(map(str, expected.to_pylist()))


def test_state_is_read_once_for_each_micro_batch(
    new_job: Callable[..., Live], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = persisted(spark)
    live = new_job()
    awaited(live)
    read: list[int] = []

    def noted(session: SparkSession, generation: Any) -> Any:
        read.append(generation.batch_id)
        return state_entries(session, generation)

    monkeypatch.setattr(live_state, "state_entries", noted)
    totals = live.client().state("totals", TOTAL)
    live.extend(10)
    for number in range(10):
        assert totals.get(number / 2) == Total(1, number)
    assert len(read) == len(set(read))
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: live.client().state("other", TOTAL).get(1.0), "no operator 'other' with states. It has: 'totals'"),
        (lambda: totals.get("a"), "of the type float"),
    ]
    for call, message in cases:
        with pytest.raises(ConfigurationError, match=message):
            call()
    live.job.stop()
    with pytest.raises(JobError, match=r"'live' has ended\. To read its state, take a savepoint"):
        totals.get(1.0)
    assert persisted(spark) <= before
