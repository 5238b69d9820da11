"""The processing-time temporal join: buffering, snapshot timeouts, state, and its removal."""

from __future__ import annotations

import logging
from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple

import pytest

from dsv2.errors import ConfigurationError, IncompatibleCheckpointError, PlanError, UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinFunction, JoinMode, JoinType, OnSnapshotTimeout, join
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.sinks import CollectSink
from dsv2.spi import KeyEntry
from dsv2.state import StateTtl
from dsv2.testing import IdleStatus, ManualClock, StampedRecord, TwoInputNonBroadcastHarness
from dsv2.watermark import new_builder
from tests.durations import ms
from tests.support import local_environment, operator_named, two_inputs

any_join: Any = join  # each of its overloads accepts one type

EVENT = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION
SECOND = timedelta(seconds=1)


class Probe(NamedTuple):
    key: str
    number: int


class Row(NamedTuple):
    key: str
    value: str | None


class Priced(NamedTuple):
    """A declared result."""

    key: str
    number: int
    value: str


def pair(probe: Probe, row: Row | None, output: Any, ctx: Any) -> None:
    output.collect((probe.number, row.value if row is not None else None))


def key_of(record: Any) -> str:
    return str(record[0])


def harness_of(function: Any = None, **options: Any) -> TwoInputNonBroadcastHarness[Probe, Row, Any]:
    function = function if function is not None else any_join(pair, JoinMode.temporal(snapshot_timeout=SECOND))
    options.setdefault("declarations", [EVENT])
    options.setdefault("clock", ManualClock(5000))
    return TwoInputNonBroadcastHarness(function, first_key=key_of, second_key=key_of, **options)


def waiting(harness: TwoInputNonBroadcastHarness[Any, Any, Any]) -> int:
    return harness.progress.counters["probe_records_waiting"]


class TestRefused:
    @pytest.mark.parametrize("join_type", JoinType, ids=lambda join_type: join_type.value)
    def test_other_join_types_are_refused(self, join_type: JoinType) -> None:
        if join_type in (JoinType.INNER, JoinType.LEFT):
            any_join(pair, JoinMode.temporal(), join_type)
            return
        with pytest.raises(ConfigurationError, match=f"must be INNER or LEFT, not {join_type}"):
            any_join(pair, JoinMode.temporal(), join_type)

    @pytest.mark.parametrize(
        ("make", "said"),
        [
            (lambda: JoinMode.temporal(ms(0)), "snapshot_timeout must be at least 1 ms, not 0 ms."),
            (lambda: JoinMode.temporal(-SECOND), "snapshot_timeout must be at least 1 ms, not -1000 ms."),
            (lambda: JoinMode.temporal(1.5), "snapshot_timeout must be a datetime.timedelta, such as"),  # type: ignore[arg-type]
            (
                lambda: any_join(pair, JoinMode.temporal(), is_deletion="value"),
                "a callable (row) -> bool, not 'value'.",
            ),
            (lambda: any_join(pair, JoinMode.temporal(), is_deletion=lambda: True), "(row) -> bool, not <function"),
            (lambda: any_join(pair, JoinMode.temporal(), row_key=7), "row_key must be a callable (row) -> key, not 7."),
            (
                lambda: any_join(pair, JoinMode.versioned(), row_key=key_of),
                "row_key does not apply to a join that is not",
            ),
            (lambda: any_join(pair, row_key=key_of), "row_key does not apply to an unbounded join."),
        ],
    )
    def test_invalid_options(self, make: Any, said: str) -> None:
        with pytest.raises(ConfigurationError) as refused:
            make()
        assert said in str(refused.value)

    @pytest.mark.parametrize("function", [JoinFunction, two_inputs(), 7])
    def test_function_that_does_not_accept_a_pair(self, function: Any) -> None:
        with pytest.raises(ConfigurationError, match="A join takes a JoinFunction"):
            any_join(function, JoinMode.temporal())

    @pytest.mark.parametrize("place", ["non-keyed", "global"])
    def test_streams_without_keys(self, place: str) -> None:
        env = local_environment()
        stream: Any = env.from_collection([1])
        stream = stream.global_() if place == "global" else stream
        stream.connect_and_process(stream, any_join(pair, JoinMode.temporal()))  # refused
        with pytest.raises(PlanError) as refused:
            env.build_plan()
        assert f"{__file__}:" in str(refused.value)
        assert "A processing-time temporal join requires two keyed streams" in str(refused.value)


class TestWaiting:
    def test_without_is_deletion_every_row_is_kept(self) -> None:
        harness = harness_of()
        harness.second_input.push(Row("a", None))
        harness.second_input.push_use_processing_time()
        harness.first_input.push(Probe("a", 1))
        assert harness.output.records == [(1, None)]

    def test_maximum_event_time_ends_the_snapshot(self) -> None:
        harness = harness_of()
        harness.first_input.push(Probe("a", 1))
        harness.second_input.push(Row("a", "row"))
        harness.second_input.push_event_time(2**63 - 2)
        assert harness.output.records == []
        harness.second_input.push_event_time(2**63 - 1)
        assert harness.output.records == [(1, "row")]

    def test_event_time_of_the_build_side_completes_it(self) -> None:
        harness = harness_of(any_join(pair, JoinMode.temporal(complete_at=100)))
        harness.first_input.push(Probe("a", 1), timestamp=60)
        harness.first_input.push_event_time(500)
        harness.second_input.push(Row("a", "row"))
        harness.second_input.push_event_time(99)
        assert harness.output.elements == []
        harness.second_input.push_event_time(120)
        assert harness.output.elements == [StampedRecord((1, "row"), 60), EVENT.new_watermark(120)]
        harness.restart()
        harness.first_input.push(Probe("a", 2), timestamp=501)
        assert harness.output.records[1:] == [(2, "row")]
        harness.second_input.push_idle()
        assert harness.output.elements[-1] == EVENT.new_watermark(500), "as that of every other function"

    @pytest.mark.parametrize("completes", [False, True])
    def test_idleness_of_the_build_side_completes_it(self, completes: bool) -> None:
        mode = JoinMode.temporal(complete_when_idle=completes)
        harness = harness_of(any_join(pair, mode), channels=2)
        harness.first_input.push(Probe("a", 1), timestamp=60)
        for channel in (0, 1):
            harness.first_input.push_event_time(500, channel=channel)
            harness.second_input.push_event_time(70, channel=channel)
        harness.second_input.push(Row("a", "row"))
        harness.second_input.push_idle(channel=0)
        assert harness.output.elements == []
        harness.second_input.push_idle(channel=1)
        assert harness.output.elements == [StampedRecord((1, "row"), 60), EVENT.new_watermark(500)] * completes

    def test_time_of_completion_is_checked(self) -> None:
        for wrong in (-1, 1.5, True):
            with pytest.raises(ConfigurationError, match="complete_at must be a whole number of at least 0, not"):
                JoinMode.temporal(complete_at=wrong)  # type: ignore[arg-type]


class TestTime:
    def test_function_may_set_the_timestamp(self) -> None:
        def stamped(probe: Probe, row: Row, output: Any, ctx: Any) -> None:
            output.collect_and_overwrite_timestamp(probe.number, probe.number)
            output.collect(probe.number)

        harness = harness_of(any_join(stamped, JoinMode.temporal()))
        harness.second_input.push(Row("a", "row"))
        harness.first_input.push(Probe("a", 30), timestamp=7)
        harness.second_input.push_use_processing_time()
        harness.first_input.push(Probe("a", 40), timestamp=8)
        assert harness.output.stamped_records == [
            StampedRecord(30, 30),
            StampedRecord(30, 7),
            StampedRecord(40, 40),
            StampedRecord(40, 8),
        ]

    def test_join_is_idle_when_the_probe_side_is(self) -> None:
        harness = harness_of()
        harness.second_input.push_idle()
        harness.first_input.push_idle()
        assert harness.output.elements == []
        harness.second_input.push_use_processing_time()
        assert harness.output.elements == [IdleStatus(True)]
        harness.first_input.push_idle(False)
        harness.second_input.push_idle(False)
        harness.first_input.push_idle()
        harness.second_input.push_idle()
        assert harness.output.idle_statuses == [True, False, True]

    def test_probe_side_that_is_idle_before_the_table_is_complete(self) -> None:
        harness = harness_of()
        harness.first_input.push(Probe("a", 1), timestamp=11)
        harness.first_input.push_event_time(50)
        harness.first_input.push_idle()
        harness.second_input.push(Row("a", "row"))
        assert harness.output.elements == []
        harness.second_input.push_use_processing_time()
        assert harness.output.elements == [StampedRecord((1, "row"), 11), EVENT.new_watermark(50), IdleStatus(True)]


class TestFoundOut:
    """A build side that never ends its snapshot."""

    def test_timeout_may_be_an_error(self) -> None:
        harness = harness_of(
            any_join(
                pair,
                JoinMode.temporal(snapshot_timeout=timedelta(minutes=2), on_snapshot_timeout=OnSnapshotTimeout.FAIL),
            )
        )
        harness.first_input.push(Probe("a", 1), Probe("b", 2))
        harness.restart()
        harness.advance_clock(ms(119_999))
        with pytest.raises(UserFunctionError) as failed:
            harness.advance_clock(ms(1))
        error = failed.value
        assert (error.callback, error.cause_type, error.key) == ("on_processing_timer", "ContractError", "'a'")
        assert error.location.startswith(__file__)
        assert "2 probe records in subtask 0 wait for the snapshot of the build side, some for 0:02:00" in str(error)
        assert "USE_PROCESSING_TIME_WATERMARK_DECLARATION.new_watermark(True), or end." in str(error)

    def test_timeout_is_a_repeated_warning_by_default(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING)
        harness = harness_of()
        harness.first_input.push(*(Probe(key, 1) for key in "abc"))
        harness.advance_clock(ms(999))
        assert (caplog.messages, harness.progress.counters.get("snapshot_timeouts")) == ([], None)
        harness.advance_clock(ms(1))
        (message,) = caplog.messages
        assert "3 probe records in subtask 0 wait for the snapshot of the build side, some for 0:00:01" in message
        assert message.startswith("Keyed-TwoInput-Process: ")
        assert harness.progress.counters["snapshot_timeouts"] == 3, "of each key"
        harness.restart()
        harness.advance_clock(ms(999))
        assert len(caplog.messages) == 1
        harness.advance_clock(ms(1))
        assert len(caplog.messages) == 2
        harness.second_input.push_use_processing_time()
        harness.advance_clock(ms(10_000))
        assert (len(caplog.messages), waiting(harness)) == (2, 0)

    def test_timeout_on_columns(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING)
        mode = JoinMode.temporal(snapshot_timeout=SECOND)
        harness = TwoInputNonBroadcastHarness[Any, Any, Any](
            any_join(Priced, mode, left_records=Probe, right_records=Row),
            first_key=attrgetter("key"),
            second_key=attrgetter("key"),
            declarations=[EVENT],
            clock=ManualClock(5000),
        )
        harness.first_input.push(Probe("a", 1), Probe("b", 2))
        harness.advance_clock(ms(500))
        harness.restart()
        harness.first_input.push(Probe("a", 3))
        harness.advance_clock(ms(500))
        (message,) = caplog.messages
        assert "3 probe records in subtask 0 wait for the snapshot of the build side, some for 0:00:01" in message
        assert harness.progress.counters["snapshot_timeouts"] == 2
        harness.restart()
        harness.advance_clock(ms(1_000))
        assert len(caplog.messages) == 2
        harness.second_input.push(Row("a", "row"))
        harness.second_input.push_use_processing_time()
        assert harness.output.records == [Priced("a", 1, "row"), Priced("a", 3, "row")]
        harness.advance_clock(ms(10_000))
        assert (len(caplog.messages), waiting(harness)) == (2, 0)

    @pytest.mark.parametrize("declarations", [[], [EVENT]], ids=["no event time", "event time"])
    @pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
    def test_no_timeout_if_input_ends_in_time(self, order: tuple[str, str], declarations: list[Any]) -> None:
        """Remaining timers fire at the end, but nothing has waited for too long."""
        harness = harness_of(
            any_join(pair, JoinMode.temporal(on_snapshot_timeout=OnSnapshotTimeout.FAIL)), declarations=declarations
        )
        harness.first_input.push(Probe("a", 1))
        harness.second_input.push(Row("a", "row"))
        for side in order:
            (harness.first_input if side == "first" else harness.second_input).end()
        assert (harness.output.records, harness.ended) == ([(1, "row")], True)

    def test_completed_snapshot_leaves_no_timers(self) -> None:
        harness = harness_of(
            any_join(pair, JoinMode.temporal(snapshot_timeout=ms(10), on_snapshot_timeout=OnSnapshotTimeout.FAIL))
        )
        harness.first_input.push(Probe("a", 1))
        assert harness.processing_timers("a") == [5010]
        harness.second_input.push_use_processing_time()
        harness.first_input.push(Probe("a", 2))
        assert harness.processing_timers("a") == []
        harness.advance_clock(ms(100))

    def test_no_timeout_without_waiting_records(self) -> None:
        harness = harness_of(
            any_join(pair, JoinMode.temporal(snapshot_timeout=ms(10), on_snapshot_timeout=OnSnapshotTimeout.FAIL))
        )
        harness.second_input.push(Row("a", "row"))
        harness.advance_clock(ms(10**9))

    def test_waiting_records_are_counted_from_the_start(self) -> None:
        assert harness_of().progress.counters == {"probe_records_waiting": 0}

    def test_job_continues_without_data_for_the_timeout(self) -> None:
        env = local_environment()
        stream = env.from_collection([Probe("a", 1)]).key_by(key_of)
        stream.connect_and_process(stream, any_join(pair, JoinMode.temporal())).with_uid("join").to_sink(CollectSink())
        plan = env.build_plan()
        assert plan.needs_clock(operator_named(plan, "join"))


class Numbering(JoinFunction[Probe, Row, Any]):
    """Counts its pairs in a field."""

    def __init__(self) -> None:
        self.pairs = 0

    def process_record(self, left: Probe, right: Row, output: Any, ctx: Any) -> None:
        self.pairs += 1
        output.collect((self.pairs, left.number, right.value))


class Choosy(Numbering):
    """Decides itself what is checkpointed."""

    def __getstate__(self) -> int:
        return self.pairs * 10

    def __setstate__(self, state: int) -> None:
        self.pairs = state // 10


class NumberingByKey(JoinFunction[Probe, Row, Any]):
    """Numbers the pairs of each key in a field."""

    keyed_fields = ("pairs",)

    def __init__(self) -> None:
        self.pairs: dict[str, int] = {}

    def process_record(self, left: Probe, right: Row, output: Any, ctx: Any) -> None:
        self.pairs[left.key] = self.pairs.get(left.key, 0) + 1
        output.collect((self.pairs[left.key], right.value))


class TestState:
    @pytest.mark.parametrize("is_over", [False, True])
    @pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2)])
    def test_it_may_be_rescaled(self, is_over: bool, before: int, after: int) -> None:
        keys = [f"key {number}" for number in range(20)]

        def subtasks(count: int, **options: Any) -> list[TwoInputNonBroadcastHarness[Probe, Row, Any]]:
            return [harness_of(parallelism=count, max_parallelism=8, subtask=n, **options) for n in range(count)]

        old = subtasks(before)
        for key in keys:
            own = old[subtask_of(key, 8, before)]
            own.second_input.push(Row(key, f"of {key}"))
            own.first_input.push(Probe(key, 1))
        for one in old if is_over else []:
            one.second_input.push_use_processing_time()
        first = [record for one in old for record in one.output.records]
        assert len(first) == (len(keys) if is_over else 0)
        new = subtasks(after, rescaled=[one.snapshot() for one in old])
        assert sum(map(waiting, new)) == (0 if is_over else len(keys))
        for one in new:
            if not is_over:
                one.second_input.push_use_processing_time()
        for key in keys:
            new[subtask_of(key, 8, after)].first_input.push(Probe(key, 2))
        results = first + [record for one in new for record in one.output.records]
        assert sorted(results) == sorted((number, f"of {key}") for key in keys for number in (1, 2))
        assert sum(map(waiting, new)) == 0

    def test_keyed_fields_of_its_function_are_redistributed(self) -> None:
        old = [
            harness_of(any_join(NumberingByKey(), JoinMode.temporal()), parallelism=3, max_parallelism=8, subtask=n)
            for n in range(3)
        ]
        for key in "abcdef":
            own = old[subtask_of(key, 8, 3)]
            own.second_input.push_use_processing_time()
            own.second_input.push(Row(key, f"of {key}"))
            own.first_input.push(Probe(key, 1))
        for idle in old:
            idle.second_input.push_use_processing_time()
        snapshots = [one.snapshot() for one in old]
        new = harness_of(
            any_join(NumberingByKey(), JoinMode.temporal()), parallelism=1, max_parallelism=8, rescaled=snapshots
        )
        new.first_input.push(*(Probe(key, 2) for key in "abcdef"))
        assert new.output.records == [(2, f"of {key}") for key in "abcdef"]
        snapshots[1] = harness_of(
            any_join(NumberingByKey(), JoinMode.temporal()), parallelism=3, max_parallelism=8, subtask=1
        ).snapshot()
        with pytest.raises(IncompatibleCheckpointError, match="differ in fields of the extension"):
            harness_of(
                any_join(NumberingByKey(), JoinMode.temporal()), parallelism=1, max_parallelism=8, rescaled=snapshots
            )

    def test_rows_expire_without_probe_records(self) -> None:
        harness = harness_of(any_join(pair, JoinMode.temporal(ttl=StateTtl(ms(100)))))
        harness.second_input.push_use_processing_time()
        harness.second_input.push(Row("a", "row"), Row("b", "row"))
        harness.advance_clock(ms(60))
        harness.second_input.push(Row("b", "later"))
        harness.advance_clock(ms(40))
        assert harness.keys == ["b"]
        harness.first_input.push(Probe("a", 1), Probe("b", 2))
        assert harness.output.records == [(2, "later")]

    def test_only_the_latest_row_is_kept(self) -> None:
        harness = harness_of(any_join(pair, JoinMode.temporal(), is_deletion=lambda row: row.value is None))
        unused = len(harness.snapshot())
        for number in range(500):
            harness.second_input.push(Row("a", f"row {number}"))
        assert len(harness.snapshot()) < unused + 200
        harness.second_input.push(Row("a", None))
        assert harness.keys == []
        assert abs(len(harness.snapshot()) - unused) < 10

    def test_probe_records_do_not_encode_rows_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Otherwise all pages with rows that were read would be encoded again."""
        harness = harness_of()
        harness.second_input.push(*(Row(f"key {number}", "row") for number in range(500)))
        harness.first_input.push(Probe("key 7", 7))
        harness.restart()
        taken: list[str] = []
        entry = PagedKeyedStore.entry

        def take(store: PagedKeyedStore, key: str) -> KeyEntry:
            taken.append(key)
            return entry(store, key)

        monkeypatch.setattr(PagedKeyedStore, "entry", take)
        harness.second_input.push_use_processing_time()
        assert set(taken) == {"key 7"}, "which has waited"
        taken.clear()
        harness.restart()
        harness.first_input.push(*(Probe(f"key {number}", number) for number in range(600)))
        assert (len(harness.output.records), taken) == (501, [])


class TestFailures:
    def failing(self, probe: Probe, row: Row, output: Any, ctx: Any) -> None:
        if probe.number == 2:
            raise ValueError("on purpose")

    def test_of_a_buffered_record_is_named(self) -> None:
        harness = harness_of(any_join(self.failing, JoinMode.temporal()))
        harness.first_input.push(Probe("a", 1), Probe("b", 2))
        harness.second_input.push(Row("a", "row"), Row("b", "row"))
        with pytest.raises(UserFunctionError) as failed:
            harness.second_input.push_use_processing_time()
        error = failed.value
        assert (error.callback, error.cause_type, error.key) == ("process_record", "ValueError", "'b'")
        assert error.record == "Probe(key='b', number=2)"
        assert "in failing\n" in error.traceback_text

    def test_of_is_deletion_is_named(self) -> None:
        harness = harness_of(any_join(pair, JoinMode.temporal(), is_deletion=lambda row: row.nothing))
        with pytest.raises(UserFunctionError) as failed:
            harness.second_input.push(Row("a", "row"))
        assert (failed.value.callback, failed.value.cause_type) == ("is_deletion", "AttributeError")
        assert failed.value.record == "Row(key='a', value='row')"

    @pytest.mark.parametrize("row_key", [lambda row: row.nothing, lambda row: []])
    def test_of_row_key_is_named(self, row_key: Any) -> None:
        harness = harness_of(any_join(pair, JoinMode.temporal(), row_key=row_key))
        with pytest.raises(UserFunctionError) as failed:
            harness.second_input.push(Row("a", "row"))
        assert failed.value.callback == "row_key"

    def test_kept_key_is_checked(self) -> None:
        harness = harness_of(any_join(pair, JoinMode.temporal()), output_key=lambda result: "z")
        harness.first_input.push(Probe("a", 1))
        harness.second_input.push(Row("a", "row"))
        with pytest.raises(UserFunctionError) as failed:
            harness.second_input.push_use_processing_time()
        assert (failed.value.cause_type, failed.value.key) == ("InvalidKeyError", "'a'")


@pytest.mark.parametrize("is_over", [False, True])
def test_other_watermarks_do_not_wait(is_over: bool) -> None:
    other = new_builder("other").type_long().build()
    harness = harness_of(declarations=[other])
    if is_over:
        harness.second_input.push_use_processing_time()
    harness.first_input.push_watermark(other.new_watermark(1))
    harness.second_input.push_watermark(other.new_watermark(2))
    assert harness.output.watermarks == [other.new_watermark(1), other.new_watermark(2)]
