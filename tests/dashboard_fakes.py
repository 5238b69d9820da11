"""A job for tests of the dashboard: orders are joined with exchange rates, and one split of the rates stands still."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from dsv2 import (
    Collector,
    CollectSink,
    ErrorPolicy,
    ExecutionEnvironment,
    NonKeyedPartitionStream,
    PartitionedContext,
    TwoInputNonBroadcastStreamProcessFunction,
)
from dsv2.base.folders import Folder
from dsv2.connectors.kafka import KafkaSource, values
from dsv2.errors import ConfigurationError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.graph import Plan
from dsv2.jobs.configuration import configuration_of
from dsv2.jobs.handle import RunOptions
from dsv2.jobs.progress import (
    BatchProgress,
    ChannelProgress,
    InputProgress,
    JobProgress,
    OperatorProgress,
    SplitProgress,
    SubtaskProgress,
)
from dsv2.plan_view.view import view_of
from dsv2.views.dashboard.jobs import Status, WatchedJob
from dsv2.watermark.event_time import EVENT_TIME

BEGAN_MS = int(time.time() * 1000) - 40_000  # so that 30 micro-batches end about now
SECRET = "hunter2-and-more"
"""The passwords in the configuration of the job."""

_BATCH_MS = 1200
_STUCK_SINCE = 12  # the micro-batch from which on the split rates-3 has no new records


class Join(TwoInputNonBroadcastStreamProcessFunction[int, int, int]):
    """Stands for a join."""

    def process_record_from_first_input(
        self, record: int, output: Collector[int], ctx: PartitionedContext[int]
    ) -> None:
        output.collect(record)

    def process_record_from_second_input(
        self, record: int, output: Collector[int], ctx: PartitionedContext[int]
    ) -> None:
        output.collect(record)


def fake_plan() -> Plan:
    """The plan of the job."""
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.set_parallelism(2)
    times = (
        EventTimeExtension.new_watermark_generator_builder(int)
        .with_max_out_of_order_time(timedelta(seconds=5))
        .periodic_watermark()
        .build_as_watermark_strategy()
    )

    def topic(name: str) -> NonKeyedPartitionStream[int]:
        source = KafkaSource(
            "kafka.example.com:9092",
            decode=values(int),
            topics=name,
            options={"sasl.username": "shop", "sasl.password": SECRET},
        )
        return env.from_source(source, name, watermarks=times).with_uid(name)

    orders = topic("orders").map(int).with_uid("parse orders")
    joined = orders.key_by(int).connect_and_process(topic("rates").key_by(int), Join()).with_uid("join")
    joined.to_sink(CollectSink[int]()).with_uid("table")
    alerts = joined.map(int).with_uid("find alerts").with_error_policy(ErrorPolicy().skip(ValueError))
    alerts.to_sink(CollectSink[int]()).with_uid("alerts")
    return env.build_plan("orders in euros")


def fake_progress(number: int) -> JobProgress:
    """The progress after micro-batch ``number``."""
    batches = tuple(map(_batch, range(max(0, number - 20), number + 1)))
    operators = [
        _operator("orders", number, 1800, splits=_order_splits(number)),
        _operator("parse orders", number, 1800, busy=0.38, state=1),
        _operator("rates", number, 90, splits=_rate_splits(number)),
        _operator("join", number, 1890, busy=0.71, held=140 * max(0, number - _STUCK_SINCE), state=900),
        _operator("find alerts", number, 1750, busy=0.05, errors=3, late=12),
        _sink("table", number, 1890),
        _sink("alerts", number, 25),
    ]
    return JobProgress(number, {operator.uid: operator for operator in operators}, batches)


def _batch(number: int) -> BatchProgress:
    wave = (number * 7) % 5
    phases = {
        "planning": 60 + 4 * wave,
        "source": 180 + 10 * wave,
        "level 1": 520 + 35 * wave,
        "sinks": 120,
        "commit": 90,
    }
    return BatchProgress(
        number, BEGAN_MS + number * _BATCH_MS, sum(phases.values()), phases, 1800 + 60 * wave, 1700 + 50 * wave
    )


def _event_time(number: int) -> int:
    return BEGAN_MS + number * _BATCH_MS - 5000


def _operator(
    uid: str,
    number: int,
    per_batch: int,
    *,
    busy: float = 0.0,
    held: int = 0,
    state: int = 0,
    errors: int = 0,
    late: int = 0,
    splits: Sequence[SplitProgress] = (),
) -> OperatorProgress:
    total = per_batch * (number + 1)
    stuck = uid == "join"
    time = _event_time(min(number, _STUCK_SINCE) if stuck else number)
    subtasks = tuple(
        SubtaskProgress(
            subtask,
            records_in=total // 2,
            records_out=total // 2,
            records_held=held // 2,
            late_records=late * subtask,
            errors=errors * subtask,
            user_time_ms=busy * 1000 * (number + 1) * (1 - 0.2 * subtask),
            state_bytes=state * 1000 * (number + 40),
            keys=420 + subtask if state else 0,
            timers=37 if stuck else 0,
            event_time=time,
            watermarks={EVENT_TIME: time},
            inputs=_inputs(number) if stuck else (),
        )
        for subtask in range(2)
    )
    return OperatorProgress(
        uid,
        uid,
        records_in=0 if splits else total,
        records_out=total,
        records_held=held,
        watermarks={} if splits else {EVENT_TIME: (time, time)},
        counters={"currencies": 31} if stuck else {},
        state_bytes=state * 1000 * (number + 40),
        records_in_per_second=0 if splits else per_batch / 1.2,
        records_out_per_second=per_batch / 1.2,
        subtasks=() if splits else subtasks,
        splits=tuple(splits),
    )


def _sink(uid: str, number: int, per_batch: int) -> OperatorProgress:
    return OperatorProgress(uid, uid, records_in=per_batch * (number + 1), records_in_per_second=per_batch / 1.2)


def _inputs(number: int) -> tuple[InputProgress, ...]:
    def channel(index: int, until: int) -> ChannelProgress:
        time, moved = _event_time(until), BEGAN_MS + until * _BATCH_MS
        return ChannelProgress(
            index, time, {EVENT_TIME: time}, moved_at_ms=moved, values_moved_at_ms={EVENT_TIME: moved}
        )

    stuck = min(number, _STUCK_SINCE)
    return (
        InputProgress(
            0, "parse orders", 2, event_time=_event_time(number), channels=(channel(0, number), channel(1, number))
        ),
        InputProgress(1, "rates", 2, event_time=_event_time(stuck), channels=(channel(0, number), channel(1, stuck))),
    )


def _order_splits(number: int) -> list[SplitProgress]:
    return [
        SplitProgress(
            f"orders-{index}",
            index % 2,
            str(600 * number + index),
            lag=40 * number if index == 2 else 12,
            event_time=_event_time(number),
            moved_at_ms=BEGAN_MS + number * _BATCH_MS,
            ended=index == 3,
        )
        for index in range(4)
    ]


def _rate_splits(number: int) -> list[SplitProgress]:
    def split(index: int, until: int) -> SplitProgress:
        moved = BEGAN_MS + until * _BATCH_MS
        return SplitProgress(
            f"rates-{index}", index % 2, str(30 * until), lag=0, event_time=_event_time(until), moved_at_ms=moved
        )

    return [split(index, min(number, _STUCK_SINCE) if index == 3 else number) for index in range(4)]


class FakeJob(WatchedJob):
    """A running job that reports when a test says so, and records what is done to it."""

    def __init__(self, batches: int, letters: Folder | None = None) -> None:
        super().__init__()
        self._letters = letters
        self.stopped = 0
        self.savepoints: list[str] = []
        plan = fake_plan()
        settings = {"spark.master": "local[2]", "spark.hadoop.fs.s3a.secret.key": SECRET}
        self.record.describe(
            plan.job_name, view_of(plan), configuration_of(plan, RunOptions(checkpoint_location="/data/c"), settings)
        )
        self.record.end(Status.RUNNING)
        self.batches = 0
        self.advance(batches)

    def advance(self, batches: int = 1) -> None:
        """Complete micro-batches."""
        for number in range(self.batches, self.batches + batches):
            self.record.add(fake_progress(number))
        self.batches += batches

    @property
    def actions(self) -> tuple[str, ...]:
        return ("stop", "savepoint") if self.record.snapshot().status is Status.RUNNING else ()

    def refresh(self) -> None:
        """Nothing to do: tests call ``advance``."""

    def letters_folder(self) -> Folder | None:
        return self._letters

    def stop(self) -> None:
        self.stopped += 1
        self.record.end(Status.STOPPED)

    def savepoint(self, path: str) -> str:
        if path == "/full":
            raise ConfigurationError("The folder /full is not empty.")
        self.savepoints.append(path)
        return path
