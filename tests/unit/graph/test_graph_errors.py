"""Errors while a pipeline is built. Each names the user's own line, or both lines of a conflict."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeAlias, cast

import pytest

from dsv2 import Dsv2Error, ExecutionEnvironment, RuntimeExecutionMode, Trigger
from dsv2.errors import ConfigurationError, PlanError, WatermarkDeclarationError
from dsv2.sinks import CollectSink, FileSink
from dsv2.sources import CollectionSource, DataGeneratorSource
from dsv2.watermark import LongWatermarkBuilder, new_builder
from tests.durations import ms

Build: TypeAlias = Callable[[Any], Any]

LONG = new_builder("w").type_long()

# Mistakes that the call itself reports as PlanError. HERE stands for the location of the call.
# fmt: off
REFUSED_CALLS: list[tuple[Build, str]] = [
    (lambda s: s.non_keyed.process(type(s.one)),
     "process at HERE takes a process function (an instance, not the class)"),
    (lambda s: s.keyed.process(type(s.two_out)),
     "process at HERE takes a process function (an instance, not the class)"),
    (lambda s: s.non_keyed.process(7),
     "process at HERE takes a process function or a callable (record, output, ctx), not 7."),
    (lambda s: s.global_.process(s.two_in), "process at HERE takes a one-input or two-output function; TwoIn has two"),
    (lambda s: s.keyed.process(s.with_side), "process at HERE takes a one-input or two-output function; WithSide has"),
    (lambda s: s.keyed.process(s.one, first_key_selector=str),
     "process at HERE: first_key_selector does not apply to a function with one output. Use new_key_selector"),
    (lambda s: s.keyed.process(s.one, "name"), "HERE: new_key_selector must be a callable (record) -> key, not 'name'"),
    (lambda s: s.keyed.process(s.two_out, str),
     "process at HERE: new_key_selector does not apply to a two-output function. Use first_key_selector and second_k"),
    (lambda s: s.keyed.process(s.two_out, first_key_selector=str),
     "process at HERE: give both first_key_selector and second_key_selector to keep the stream keyed, or neither."),
    (lambda s: s.keyed.process(s.two_out, first_key_selector=str, second_key_selector="name"),
     "process at HERE: second_key_selector must be a callable (record) -> key, not 'name'."),
    (lambda s: s.keyed.key_by(7), "key_by at HERE takes a callable (record) -> key, or names and expressions of colu"),

    # Callables with a wrong signature.
    (lambda s: s.keyed.key_by(lambda: 1), "key_by at HERE takes a callable (record) -> key, not <function"),
    (lambda s: s.non_keyed.process(lambda record, output: None), "takes a process function or a callable (record, out"),
    (lambda s: s.non_keyed.map(lambda one, other: one), "map at HERE takes a callable (record), not <function"),
    (lambda s: s.non_keyed.filter(True), "filter at HERE takes a callable (record), not True."),
    (lambda s: s.non_keyed.flat_map(lambda: ""), "flat_map at HERE takes a callable (record), not <function"),
    (lambda s: s.keyed.process(s.one, lambda: 1), "HERE: new_key_selector must be a callable (record) -> key, not <f"),
    (lambda s: s.keyed.connect_and_process(s.other_keyed, s.two_in, lambda one, other: one),
     "connect_and_process at HERE: new_key_selector must be a callable (record) -> key, not <function"),

    (lambda s: s.non_keyed.to_sink(7), "to_sink at HERE takes a sink of dsv2.sinks, not int."),
    (lambda s: s.global_.to_sink(CollectSink), "at HERE takes a sink of dsv2.sinks, not the class CollectSink itself."),
    (lambda s: s.env.from_source([1]), "from_source at HERE takes a source of dsv2.sources, not list."),
    (lambda s: s.env.from_source(CollectionSource([1]), s.one),
     "from_source at HERE: name must be a string, not One. A watermark strategy is passed as watermarks=..."),
    (lambda s: s.env.from_source(CollectionSource), "at HERE takes a source of dsv2.sources, not the class Coll"),

    (lambda s: s.non_keyed.connect_and_process(s.other_non_keyed, s.with_side),
     "connect_and_process at HERE takes a TwoInputNonBroadcastStreamProcessFunction for these streams, not WithSide."),
    (lambda s: s.keyed.connect_and_process(s.other_keyed, type(s.two_in)),
     "connect_and_process at HERE takes a TwoInputNonBroadcastStreamProcessFunction for these streams, not the class"),
    (lambda s: s.global_.connect_and_process(s.other_global, s.one),
     "connect_and_process at HERE takes a TwoInputNonBroadcastStreamProcessFunction for these streams, not One."),
    (lambda s: s.keyed.connect_and_process(s.broadcast, s.two_in),
     "connect_and_process at HERE takes a TwoInputBroadcastStreamProcessFunction for these streams, not TwoIn."),
    (lambda s: s.broadcast.connect_and_process(s.non_keyed, s.two_in),
     "connect_and_process at HERE takes a TwoInputBroadcastStreamProcessFunction for these streams, not TwoIn."),
    (lambda s: s.keyed.connect_and_process(s.other_keyed, s.two_in, "name"),
     "connect_and_process at HERE: new_key_selector must be a callable (record) -> key, not 'name'."),
    (lambda s: s.broadcast.connect_and_process(s.keyed, s.with_side, "name"),
     "connect_and_process at HERE: new_key_selector must be a callable (record) -> key, not 'name'."),
    (lambda s: s.broadcast.connect_and_process(s.non_keyed, s.with_side, str),
     "connect_and_process at HERE: only a keyed stream can stay keyed."),

    (lambda s: s.keyed.connect_and_process(s.non_keyed, s.two_in),
     "connect_and_process at HERE: a KeyedPartitionStream connects to a KeyedPartitionStream or a BroadcastStream,"),
    (lambda s: s.non_keyed.shuffle().connect_and_process(s.keyed, s.two_in),
     "at HERE: a NonKeyedPartitionStream connects to a NonKeyedPartitionStream or a BroadcastStream, not to a Keyed"),
    (lambda s: s.global_.connect_and_process(s.broadcast, s.with_side),
     "connect_and_process at HERE: a GlobalStream connects to a GlobalStream, not to a BroadcastStream."),
    (lambda s: s.broadcast.connect_and_process(s.broadcast, s.with_side),
     "HERE: a BroadcastStream connects to a KeyedPartitionStream or a NonKeyedPartitionStream, not to a Broadcast"),
    (lambda s: s.broadcast.connect_and_process(s.global_, s.with_side),
     "HERE: a BroadcastStream connects to a KeyedPartitionStream or a NonKeyedPartitionStream, not to a GlobalStream"),

    (lambda s: s.non_keyed.connect_and_process(foreign(s).non_keyed, s.two_in),
     "connect_and_process at HERE: the two streams belong to different environments."),
    (lambda s: s.keyed.connect_and_process(foreign(s).keyed, s.two_in),
     "connect_and_process at HERE: the two streams belong to different environments."),
    (lambda s: s.global_.connect_and_process(foreign(s).global_, s.two_in),
     "connect_and_process at HERE: the two streams belong to different environments."),
    (lambda s: s.broadcast.connect_and_process(foreign(s).keyed, s.with_side),
     "connect_and_process at HERE: the two streams belong to different environments."),
]

# Mistakes that the call itself reports as ConfigurationError: unusable values.
REFUSED_VALUES: list[tuple[Build, str]] = [
    (lambda s: s.non_keyed.with_parallelism(0), "main at HERE: parallelism must be a whole number from 1 to 32768"),
    (lambda s: s.non_keyed.with_parallelism(True), "main at HERE: parallelism must be a whole number"),
    (lambda s: s.non_keyed.map(str).with_max_parallelism(32769), "Map at HERE: max parallelism must be a whole number"),
    (lambda s: s.global_.process(s.one).with_parallelism(2), "HERE: the parallelism of a global stream must be 1, not"),
    (lambda s: s.global_.process(s.two_out).second.with_max_parallelism(2), "the max parallelism of a global stream"),
    (lambda s: s.global_.to_sink(CollectSink()).with_parallelism(2), "Sink at HERE: the parallelism of a global strea"),
    (lambda s: s.non_keyed.with_uid(" "), "A uid must be a non-empty string, not ' ' (at HERE)."),
    (lambda s: s.non_keyed.map(str).with_name(""), "A name must be a non-empty string, not '' (at HERE)."),
    (lambda s: s.env.from_collection([1, None]), "must not contain None: None is not a record."),
    (lambda s: s.env.from_collection([1], records_per_batch=0), "records_per_batch must be a whole number of at"),
    (lambda s: s.env.from_dataframe(DataFrame(), dict, records_per_batch=0), "records_per_batch must be a whole num"),
    (lambda s: FileSink("", schema=int), "FileSink requires a path."),
    (lambda s: s.env.from_dataframe([1], dict),
     "from_dataframe takes a DataFrame of Spark or pandas, or an Arrow table, not a list."),
    (lambda s: s.env.set_parallelism(0), "parallelism must be a whole number of at least 1, not 0."),
    (lambda s: s.env.set_execution_mode("BATCH"),
     "mode must be one of 'streaming', 'batch', 'automatic', or a member of RuntimeExecutionMode, not 'BATCH'."),
    (lambda s: s.env.register_type(1), "register_type takes a class, not 1."),
    (lambda s: s.env.register_type(set, take_apart=list), "register_type(set) requires both take_apart and build, as"),
    (lambda s: s.env.register_type(set, take_apart=0, build=0), "register_type(set) requires both take_apart and b"),
    (lambda s: s.env.get_instance("flink"), "Unknown runtime 'flink': choose one of local, spark."),
    (lambda s: s.env.get_instance(), "The Spark runtime requires a session: get_instance(spark=session)"),
    (lambda s: s.env.get_instance("local", spark=s), 'runtime="local" takes none.'),
    (lambda s: s.env.get_instance(object(), spark=s), 'spark=... requires runtime="spark".'),
    (lambda s: s.env.get_instance("spark", spark=s, checks=False), 'checks=False requires runtime="local".'),
    (lambda s: Trigger.processing_time(ms(-1)), "interval must be 0 or more, not -1 ms."),
    (lambda s: Trigger.processing_time(5), "interval must be a datetime.timedelta, such as timedelta(seconds=5), not"),  # type: ignore[arg-type]
    (lambda s: s.env.set_callback_timeout(60_000), "timeout must be a datetime.timedelta, such as timedelta("),
    (lambda s: s.env.set_callback_timeout(ms(0)), "timeout must be at least 1 ms, not 0 ms."),
    (lambda s: s.env.execute(trigger=5), "trigger must be a Trigger, such as Trigger.available_now(), not 5."),
    (lambda s: s.env.execute(as_new_job=True), "as_new_job=True requires savepoint=..., from which the new job star"),
    (lambda s: s.env.execute(triger=5), "execute has no option 'triger'. Did you mean 'trigger'?"),
    (lambda s: s.env.execute(color="red"), "execute has no option 'color'. The options are checkpoint_location, "),
    (lambda s: s.env.execute(on_change="ignore"), "on_change must be one of 'migrate', 'refuse', or a member"),
]

# Mistakes that only the whole pipeline shows. HERE stands for the location of the call that created the operator.
REFUSED_PLANS: list[tuple[Build, type[PlanError], str]] = [
    (lambda s: s.non_keyed, PlanError, "Nothing to run: the pipeline has no operator after its sources."),
    (lambda s: s.non_keyed.map(str).with_parallelism(3).with_max_parallelism(2), ConfigurationError,
     "Map at HERE: parallelism 3 exceeds max parallelism 2."),
    (lambda s: s.non_keyed.process(s.declaring(["w"])), WatermarkDeclarationError,
     "HERE: declare_watermarks returned 'w', which is not a watermark declaration."),
    (lambda s: s.non_keyed.process(s.declaring([LONG])), WatermarkDeclarationError, "which is not a watermark decl"),
    (lambda s: s.non_keyed.process(s.declaring(LONG.build())), WatermarkDeclarationError,
     "HERE: declare_watermarks returned LongWatermarkDeclaration(identifier='w'"),
    (lambda s: s.non_keyed.process(s.declaring(None)), WatermarkDeclarationError,
     "HERE: declare_watermarks returned None, not a collection of declarations."),
    (lambda s: s.env.from_source(DataGeneratorSource(str), "endless").map(str), PlanError,
     "BATCH requires bounded sources, but endless at HERE is unbounded."),
]
# fmt: on


def place(code: Callable[..., object]) -> str:
    """File and line of ``code``, a function on one line of this file."""
    return f"{__file__}:{cast(FunctionType, code).__code__.co_firstlineno}"


def made_at(call: Callable[[], object]) -> str:
    """Make the call and return its location."""
    call()
    return place(call)


class DataFrame:
    """The part of a DataFrame that is looked at."""

    isStreaming = False  # noqa: N815 - Spark's name


def foreign(s: Any) -> Any:
    """The streams of another environment."""
    return type(s)(ExecutionEnvironment.get_instance(runtime="local"))


def assert_refused(call: Callable[[], object], error: type[Dsv2Error], said: str) -> None:
    with pytest.raises(Dsv2Error) as refused:
        call()
    assert type(refused.value) is error
    assert said in str(refused.value)


@pytest.mark.parametrize(("call", "said"), REFUSED_CALLS)
def test_invalid_call_is_refused(s: Any, call: Build, said: str) -> None:
    assert_refused(lambda: call(s), PlanError, said.replace("HERE", place(call)))


@pytest.mark.parametrize(("call", "said"), REFUSED_VALUES)
def test_invalid_value_is_refused(s: Any, call: Build, said: str) -> None:
    assert_refused(lambda: call(s), ConfigurationError, said.replace("HERE", place(call)))


@pytest.mark.parametrize(("build", "error", "said"), REFUSED_PLANS)
def test_invalid_plan_is_refused(
    env: ExecutionEnvironment, s: Any, build: Build, error: type[Dsv2Error], said: str
) -> None:
    env.set_execution_mode(RuntimeExecutionMode.BATCH)
    build(s)
    assert_refused(env.execute, error, said.replace("HERE", place(build)))


@pytest.mark.parametrize("call", [call for call, _ in REFUSED_CALLS])
def test_refused_call_leaves_the_plan_unchanged(env: ExecutionEnvironment, s: Any, call: Build) -> None:
    with pytest.raises(PlanError):
        call(s)
    s.non_keyed.map(str)
    assert [operator.name for operator in env.build_plan().operators] == ["main", "side", "Map"]


def test_empty_environment_has_nothing_to_run(env: ExecutionEnvironment) -> None:
    assert_refused(env.execute, PlanError, "Nothing to run")


def test_duplicate_uid_names_both_operators(env: ExecutionEnvironment, s: Any) -> None:
    first = made_at(lambda: s.keyed.process(s.one).with_uid("u"))
    second = made_at(lambda: s.non_keyed.map(str).with_uid("u"))
    said = f"the uid 'u': KeyedProcess at {first} and Map at {second}."
    assert_refused(env.build_plan, ConfigurationError, said)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LONG, new_builder("w").type_bool()),
        (LONG, new_builder("w").type_long().combine_wait_for_all_channels(True)),
    ],
)
def test_conflicting_declarations_name_both_operators(
    env: ExecutionEnvironment, s: Any, one: LongWatermarkBuilder, other: LongWatermarkBuilder
) -> None:
    """Flink starts such a job, which then fails in ``open`` with "Duplicate key"."""
    first = made_at(lambda: s.non_keyed.process(s.declaring([one.build()])).with_uid("first"))
    second = made_at(lambda: s.keyed.process(s.declaring([other.build()])))
    with pytest.raises(WatermarkDeclarationError, match="'w' has two different declarations") as refused:
        env.build_plan()
    _, one_of_them, the_other, _ = str(refused.value).splitlines()
    assert one_of_them.split() == f"Process (uid 'first') at {first}: {one.build()}".split()
    assert f"at {second}: {other.build()}" in the_other


def test_line_of_the_method_counts_in_a_multi_line_call(env: ExecutionEnvironment) -> None:
    start = sys._getframe().f_lineno
    (
        env.from_collection([1], "numbers")
        .map(str)
        .with_parallelism(3)
    )  # fmt: skip
    assert [operator.location for operator in env.build_plan().operators] == [
        f"{__file__}:{start + 2}",
        f"{__file__}:{start + 3}",
    ]
