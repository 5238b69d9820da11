"""Mistakes that would silently give an empty or wrong result: refused, or reported as warnings."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsv2 import Collector, ExecutionEnvironment, OutputTag, PartitionedContext
from dsv2.errors import PlanError, SchemaError, UnreadStreamWarning, UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinFunction, JoinMode, join
from dsv2.extension.window import OneInputWindowStreamProcessFunction, WindowStrategy
from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.sinks import CollectSink, FileSink
from dsv2.testing import OneInputHarness, TwoInputNonBroadcastHarness
from dsv2.watermark import WatermarkHandlingResult
from runtime_spark.sink.sinks import check_sink
from tests.durations import ms

TEN = WindowStrategy.tumbling(ms(10))
by_hour = EventTimeExtension.new_watermark_generator_builder


class One(OneInputStreamProcessFunction[Any, Any]):
    def process_record(self, record: Any, output: Any, ctx: Any) -> Any:
        output.collect(record)


class Yields(One):
    def process_record(self, record: Any, output: Any, ctx: Any) -> Any:
        yield record


class Awaits(One):
    async def process_record(self, record: Any, output: Any, ctx: Any) -> Any: ...  # type: ignore[override]


class AwaitsAtEnd(One):
    async def end_input(self, ctx: Any) -> Any: ...  # type: ignore[override]


class YieldsWindows(OneInputWindowStreamProcessFunction[Any, Any]):
    def on_trigger(self, output: Any, ctx: Any, window: Any) -> Any:
        yield from window.get_all_records()


class YieldsPairs(JoinFunction[Any, Any, Any]):
    def process_record(self, left: Any, right: Any, output: Any, ctx: Any) -> Any:
        yield left, right


def yields(record: Any, *more: Any) -> Generator[Any, None, None]:
    yield record


async def awaits(record: Any, *more: Any) -> Any:
    return record


class Called:
    async def __call__(self, record: Any, *more: Any) -> Any: ...


any_join: Any = join


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda s: s.non_keyed.process(Yields()), "Yields.process_record is a generator"),
        (lambda s: s.non_keyed.process(Awaits()), "Awaits.process_record is a coroutine"),
        (lambda s: s.non_keyed.process(AwaitsAtEnd()), "AwaitsAtEnd.end_input is a coroutine"),
        (lambda s: s.non_keyed.process(yields), "its function is a generator"),
        (lambda s: s.non_keyed.process(partial(awaits)), "its function is a coroutine"),
        (lambda s: s.non_keyed.process(Called()), "its function is a coroutine"),
        (lambda s: s.non_keyed.map(yields), "the function of map is a generator. Use flat_map"),
        (lambda s: s.non_keyed.map(awaits), "its function is a coroutine"),
        (lambda s: s.non_keyed.filter(yields), "its predicate is a generator"),
        (lambda s: s.non_keyed.flat_map(awaits), "its function is a coroutine"),
        (lambda s: s.non_keyed.key_by(awaits).process(One()), "the key selector is a coroutine"),
        (lambda s: s.keyed.process(One(), yields), "the key selector is a generator"),
        (lambda s: s.keyed.window(TEN).process(YieldsWindows()), "YieldsWindows.on_trigger is a generator"),
        (lambda s: s.keyed.window(TEN).reduce(yields), "its function is a generator"),
        (
            lambda s: s.keyed.connect_and_process(s.other_keyed, join(YieldsPairs())),
            "YieldsPairs.process_record is a generator",
        ),
        (lambda s: s.keyed.connect_and_process(s.other_keyed, any_join(yields)), "its function is a generator"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_code_that_would_never_run_is_refused(
    env: ExecutionEnvironment, s: Any, build: Callable[[Any], Any], said: str
) -> None:
    build(s)
    with pytest.raises(PlanError) as refused:
        env.build_plan()
    assert f" at {__file__}:{build.__code__.co_firstlineno}: {said}" in str(refused.value)


def test_lambda_may_collect_several_records() -> None:
    assert run([1], lambda s: s.process(lambda record, output, ctx: [output.collect(record) for _ in "ab"])) == [1, 1]


def test_flat_map_accepts_generators() -> None:
    assert run([1, 2], lambda s: s.flat_map(yields)) == [1, 2]


def run(records: list[Any], build: Callable[[Any], Any]) -> list[Any]:
    env, sink = ExecutionEnvironment.get_instance(runtime="local"), CollectSink[Any]()
    build(env.from_collection(records)).to_sink(sink)
    env.execute()
    return sink.results


class ReturnsIn(One):
    """Returns a value in one callback."""

    def __init__(self, callback: str) -> None:
        self.callback = callback

    def _of(self, callback: str) -> Any:
        return "lost" if callback == self.callback else None

    def open(self, ctx: Any) -> Any:
        return self._of("open")

    def process_record(self, record: Any, output: Any, ctx: Any) -> Any:
        ctx.processing_time_manager.register_timer(0)
        ctx.non_partitioned_context.apply_to_all_partitions(lambda output, ctx: self._of("apply_to_all_partitions"))
        return self._of("process_record")

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> Any:
        return self._of("on_processing_timer")

    def end_input(self, ctx: Any) -> Any:
        return self._of("end_input")

    def close(self) -> Any:
        return self._of("close")


@pytest.mark.parametrize("callback", ["open", "process_record", "on_processing_timer", "end_input", "close"])
def test_return_value_of_a_callback_is_refused(callback: str) -> None:
    with pytest.raises(UserFunctionError, match="The callback returned 'lost', which is discarded") as refused:
        run([1], lambda s: s.key_by(str).process(ReturnsIn(callback)))
    assert refused.value.callback == callback


def test_return_value_for_partitions_is_refused() -> None:
    with pytest.raises(UserFunctionError, match="returned 'lost', which is discarded"):
        run([1], lambda s: s.key_by(str).process(ReturnsIn("apply_to_all_partitions")))


class ReturnsRecord(OneInputWindowStreamProcessFunction[Any, Any]):
    def on_trigger(self, output: Any, ctx: Any, window: Any) -> Any:
        return window.get_all_records()


class ReturnsOnRecord(ReturnsRecord):
    def on_record(self, record: Any, output: Any, ctx: Any, window: Any) -> Any:
        return record


class ReturnsPair(JoinFunction[Any, Any, Any]):
    def process_record(self, left: Any, right: Any, output: Any, ctx: Any) -> Any:
        return left, right


class ReturnsFromInputs(TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]):
    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> Any: ...
    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> Any:
        return record


def returns(record: Any, output: Any, ctx: Any) -> Any:
    return record


def undecorated(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda record, output, ctx: function(record, output, ctx)


def stamped(s: Any) -> Any:
    return s.process(by_hour(lambda record: record).build_as_process_function())


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda s: s.process(returns), "returned 3"),
        (lambda s: s.map(abs).process(returns), "returned 3"),  # chained
        (lambda s: s.map(abs).key_by(str).process(returns), "returned 3"),
        (lambda s: stamped(s).key_by(str).process(returns), "returned 3"),
        (lambda s: s.process(undecorated(yields)), "is a generator, which never runs"),
        (lambda s: s.process(undecorated(awaits)), "is a coroutine, which never runs"),
        (lambda s: stamped(s).key_by(str).window(TEN).process(ReturnsRecord()), r"returned \[3\]"),
        (lambda s: stamped(s).key_by(str).window(TEN).process(ReturnsOnRecord()), "returned 3"),
        (lambda s: stamped(s).shuffle().process(returns), "returned 3"),
        (lambda s: s.connect_and_process(s.shuffle(), ReturnsFromInputs()), "returned 3"),
        (lambda s: s.key_by(str).connect_and_process(s.key_by(str), join(ReturnsPair())), r"returned \(3, 3\)"),
        (
            lambda s: (
                stamped(s)
                .key_by(str)
                .connect_and_process(stamped(s).key_by(str), join(ReturnsPair(), JoinMode.window(TEN)))
            ),
            r"returned \(3, 3\)",
        ),
        (
            lambda s: (
                stamped(s)
                .key_by(str)
                .connect_and_process(stamped(s).key_by(str), join(ReturnsPair(), JoinMode.interval(ms(0), ms(0))))
            ),
            r"returned \(3, 3\)",
        ),
    ],
)
def test_return_value_for_a_record_is_refused(build: Callable[[Any], Any], said: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Python's own warning about a coroutine that was never awaited
        with pytest.raises(UserFunctionError, match=f"The callback {said}"):
            run([3], build)


@pytest.mark.parametrize("first", ["left", "right"])
@pytest.mark.parametrize("build", [join, lambda function: join(function, JoinMode.interval(ms(0), ms(0)))])
def test_return_value_of_a_join_is_refused(build: Any, first: str) -> None:
    harness = TwoInputNonBroadcastHarness[Any, Any, Any](build(ReturnsPair()), first_key=str, second_key=str)
    inputs = [harness.first_input, harness.second_input]
    inputs[first == "right"].push(3, timestamp=1)
    with pytest.raises(UserFunctionError, match=r"The callback returned \(3, 3\)"):
        inputs[first == "left"].push(3, timestamp=1)


def with_method(name: str) -> Any:
    """A function whose class has an additional method of this name."""
    return type("Renamed", (One,), {name: lambda self, *args: None, "__module__": __name__})()


class Helped(One):
    def process_record(self, record: Any, output: Any, ctx: Any) -> Any:
        _ = [self.on_hit(each) for each in [record]]
        self.process_hits([record])

    def on_hit(self, record: Any) -> Any: ...
    def process_hits(self, records: Any) -> None: ...
    def describe(self) -> str:
        return "a name that is like no callback's"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("on_watermarks", "Did you mean on_watermark?"),
        ("on_timer", "Did you mean on_processing_timer?"),
        ("on_event_timer", "subclass OneInputEventTimeStreamProcessFunction"),
        ("on_event_time_watermark", "subclass OneInputEventTimeStreamProcessFunction"),
        ("on_open", "this class has on_key_watermark, on_processing_timer, on_watermark."),
        ("onWatermark", "Did you mean on_watermark?"),
        ("declareWatermarks", "Did you mean declare_watermarks?"),
        ("declare_watermark", "Did you mean declare_watermarks?"),
        ("use_states", "Did you mean uses_states?"),
        ("end_inputs", "Did you mean end_input?"),
        ("declare_output", "Did you mean declare_outputs?"),
    ],
)
def test_misspelled_callback_is_refused(env: ExecutionEnvironment, s: Any, name: str, advice: str) -> None:
    s.keyed.process(with_method(name))
    with pytest.raises(PlanError) as refused:
        env.build_plan()
    assert f"Renamed.{name} is never called" in str(refused.value)
    assert advice in str(refused.value)


class OfReservedName(OneInputStreamProcessFunction[Any, Any]):
    dsv2_remember_key = False

    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


def test_unknown_reserved_name_is_refused(env: ExecutionEnvironment, s: Any) -> None:
    s.keyed.process(OfReservedName())
    with pytest.raises(PlanError, match=r"OfReservedName\.dsv2_remember_key is unknown.* dsv2_remember_keys"):
        env.build_plan()


class OfOneInput(TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]):
    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None: ...
    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None: ...
    def on_watermark(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK


def test_callback_of_another_function_kind_is_refused(env: ExecutionEnvironment, s: Any) -> None:
    s.non_keyed.connect_and_process(s.other_non_keyed, OfOneInput())
    with pytest.raises(PlanError, match="on_watermark_from_first_input or on_watermark_from_second_input"):
        env.build_plan()


def test_methods_called_by_the_class_may_have_any_name(env: ExecutionEnvironment, s: Any) -> None:
    s.keyed.process(Helped())
    assert env.build_plan()


class TwoOut(TwoOutputStreamProcessFunction[Any, int, str]):
    def process_record(self, record: Any, first_output: Any, second_output: Any, ctx: Any) -> None: ...


class Writes(OneInputStreamProcessFunction[Any, None]):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


def warnings_of(build: Callable[[Any], Any]) -> list[tuple[str, int, str]]:
    env = ExecutionEnvironment.get_instance(runtime="local")
    stream = env.from_collection([1])
    stream.to_sink(CollectSink())
    build(stream)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env.execute()
    assert all(issubclass(warning.category, UnreadStreamWarning) for warning in caught)
    return [(warning.filename, warning.lineno, str(warning.message)) for warning in caught]


def test_unread_stream_is_a_warning_at_its_line() -> None:
    def build(stream: Any) -> None:
        stream.map(str)

    line = build.__code__.co_firstlineno + 1
    [(file, number, said)] = warnings_of(build)
    assert (file, number) == (__file__, line)
    assert re.fullmatch(
        r"\[unread-output\] Map \(uid '.+'\) emits the stream, which nothing reads: its records are lost. "
        r"Add to_sink or process.",
        said,
    )


@pytest.mark.parametrize(
    ("build", "unread"),
    [
        (lambda stream: stream.process(TwoOut()), ["first ", "second "]),
        (lambda stream: stream.process(TwoOut()).first.to_sink(CollectSink()), ["second "]),
        (lambda stream: stream.process(Writes()), []),
        (lambda stream: stream.map(str).to_sink(CollectSink()), []),
    ],
)
def test_each_output_counts_unless_it_is_declared_empty(build: Callable[[Any], Any], unread: list[str]) -> None:
    said = [text for _, _, text in warnings_of(build)]
    assert [text.split(" emits ")[1].split(",")[0] for text in said] == [f"the {which}stream" for which in unread]


def line_of_this_call() -> int:
    return sys._getframe(1).f_lineno


def test_executed_pipeline_cannot_be_used_again() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    stream = env.from_collection([1]).map(str)
    stream.to_sink(CollectSink())
    env.execute()
    executed_at = f"{__file__}:{line_of_this_call() - 1}"
    with pytest.raises(PlanError, match="Nothing to run: the pipeline was executed at ") as twice:
        env.execute()
    assert executed_at in str(twice.value)
    for use in (lambda: stream.map(str), lambda: stream.to_sink(CollectSink()), lambda: stream.with_uid("late")):
        with pytest.raises(PlanError, match="is part of the pipeline that was executed at ") as used:
            use()
        assert executed_at in str(used.value)
        assert f"{__file__}:{use.__code__.co_firstlineno}" in str(used.value)


def test_refused_pipeline_is_kept() -> None:
    env, sink = ExecutionEnvironment.get_instance(runtime="local"), CollectSink[int]()
    env.from_collection([1]).to_sink(sink)
    with pytest.raises(PlanError, match="is not on the local disk"):
        env.execute(checkpoint_location="s3://bucket/there")
    env.execute()
    assert sink.results == [1]


class Total(NamedTuple):
    word: str
    number: int


@dataclass
class Weight:
    word: str
    weight: float

    @property
    def number(self) -> int:
        return 1


class ToTotal(OneInputStreamProcessFunction[str, Total]):
    def process_record(self, record: str, output: Collector[Total], ctx: PartitionedContext[Total]) -> None: ...


class Passing(ToTotal): ...


def to_total(record: str) -> Total:
    return Total(record, 1)


def to_totals(record: str) -> Iterable[Total]:
    yield Total(record, 1)


def collects(record: str, output: Collector[Total], ctx: PartitionedContext[Total]) -> None: ...


def to_weight(record: str) -> Weight:
    return Weight(record, 1.5)


def to_unknown(record: str) -> Unknown:  # type: ignore[name-defined]  # noqa: F821 - only for type checkers
    return record


class Unresolvable(NamedTuple):
    word: Unknown  # type: ignore[name-defined]  # noqa: F821


def to_unresolvable(record: str) -> Unresolvable:
    return Unresolvable(record)


def to_several(record: str) -> tuple[str, ...]:
    return (record, record)


def to_pair(record: str) -> tuple[str, int]:
    return record, 1


class Count(NamedTuple):
    number: int


class Named(NamedTuple):
    word: int


class Missing(NamedTuple):
    word: str
    total: int


class Sized(NamedTuple):
    word: str
    number: float


def check(build: Callable[[Any], Any], schema: Any) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    build(env.from_collection(["a"])).to_sink(FileSink("somewhere", schema=schema))
    plan = env.build_plan()
    check_sink(plan, plan.operators[-1])


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.process(ToTotal()),
        lambda s: s.process(Passing()),
        lambda s: s.process(collects),
        lambda s: s.map(to_total),
        lambda s: s.flat_map(to_totals),
        lambda s: s.map(to_total).filter(bool),
        lambda s: stamped(s.map(to_total)),
        lambda s: s.map(to_total).key_by(str).window(TEN).reduce(max).map(to_total),
    ],
)
def test_sink_schema_must_fit_the_declared_records(build: Callable[[Any], Any]) -> None:
    for schema in (Total, Count, Sized):
        check(build, schema)
    with pytest.raises(SchemaError, match="Total has no field 'total'"):
        check(build, Missing)
    with pytest.raises(SchemaError, match="field 'word' is of type str, but the column is bigint"):
        check(build, Named)


def test_records_without_fields_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"they are of type str, which has no fields; map them to tuples"):
        check(lambda s: s, Count)
    check(lambda s: s.map(to_pair), Total)
    with pytest.raises(SchemaError, match="they have 2 values"):
        check(lambda s: s.map(to_pair), Count)


class Table:
    """The part of a DataFrame that the plan looks at."""

    isStreaming = False  # noqa: N815 - Spark's name


def test_schema_must_fit_the_rows_of_a_dataframe() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    rows: Any = env.from_dataframe(Table(), Total)
    rows.to_sink(FileSink("somewhere", schema=Missing))
    plan = env.build_plan()
    with pytest.raises(SchemaError, match="Total has no field 'total'"):
        check_sink(plan, plan.operators[-1])


def test_properties_and_undeclared_types_are_accepted() -> None:
    check(lambda s: s.map(to_weight), Total)
    check(lambda s: s.map(lambda word: Missing(word, 1)), Total)
    check(lambda s: s.process(One()), Total)
    check(lambda s: s.map(to_unknown), Total)
    check(lambda s: s.map(to_several), Total)
    check(lambda s: s.map(to_unresolvable), Total)
    check(lambda s: stamped(s).key_by(str).window(TEN).with_late_output(OutputTag("late", str)).reduce(max), Total)


FAILING = """
from dsv2 import ExecutionEnvironment, JobStatus
from dsv2.sinks import CollectSink

env = ExecutionEnvironment.get_instance(runtime="local")
env.from_collection([0]).map(lambda record: 1 // record).to_sink(CollectSink())
job = env.execute_async("halves")
while job.status is JobStatus.RUNNING:
    pass
print(job)
env.from_collection([1]).to_sink(CollectSink())
env.execute_async("finished")
"""


@pytest.mark.parametrize(("asks", "warned"), [("", True), ("assert job.exception()", False)])
def test_unchecked_failure_is_a_warning_at_exit(asks: str, warned: bool, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(FAILING + asks)
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=True, cwd=Path.cwd(), env=None
    )
    assert done.stdout == "<job 'halves': FAILED>\n"
    assert done.stderr.count("UnfinishedJobWarning: Job") == warned
    said = f"{program}:7: UnfinishedJobWarning: Job 'halves' failed, and the program never checked its result. ZeroDiv"
    assert (said in done.stderr) == warned


def test_harnesses_refuse_the_same() -> None:
    with pytest.raises(PlanError, match="is a generator"):
        OneInputHarness[Any, Any](Yields())
