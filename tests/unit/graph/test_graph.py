"""From the fluent API to the plan: what each call adds, and how a plan is divided into subtasks."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeAlias, cast

import pytest

from dsv2 import ExecutionEnvironment, JobHandle, RuntimeExecutionMode, Trigger
from dsv2.graph import Operator, Plan
from dsv2.jobs.handle import RunOptions
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource
from dsv2.streams import (
    ConfiguredGlobalStream,
    ConfiguredKeyedStream,
    ConfiguredSink,
    ConfiguredStream,
    TwoGlobalStreams,
    TwoKeyedStreams,
    TwoStreams,
)
from dsv2.watermark import new_builder
from tests.durations import ms

Build: TypeAlias = Callable[[Any], Any]

NonKeyed = ConfiguredStream
Keyed = ConfiguredKeyedStream
Global = ConfiguredGlobalStream
TwoNonKeyed = TwoStreams
TwoKeyed = TwoKeyedStreams


def new_key(record: Any) -> Hashable:
    return str(record)


def other_key(record: Any) -> Hashable:
    return str(record)


def kept(s: Any) -> Any:
    """Two outputs that stay keyed."""
    return s.keyed.process(s.two_out, first_key_selector=new_key, second_key_selector=other_key)


def described(plan: Plan, operator: Operator) -> str:
    """Kind, name and parallelism. For each input its source, exchange and key. The keys that the outputs must keep."""

    def inputs() -> str:
        edges = plan.edges_into[operator.id]
        assert [edge.key_selector for edge in edges] == list(operator.input_keys)
        names = [getattr(edge.key_selector, "__name__", "") for edge in edges]
        words = [
            f"{plan.operators[edge.source].name}{'.second' * edge.output} {edge.exchange.value} {name}"
            for edge, name in zip(edges, names, strict=True)
        ]
        return ", ".join(word.rstrip() for word in words)

    kept = " ".join(getattr(selector, "__name__", "-") for selector in operator.output_keys)
    return f"{operator.kind.value} | {operator.name} x{operator.parallelism} | {inputs()} | {kept}"


# fmt: off
ROWS: list[tuple[Build, type, str]] = [
    # process on a non-keyed stream, and after every conversion of one
    (lambda s: s.non_keyed.process(s.one), NonKeyed, "one-input | Process x2 | main forward | -"),
    (lambda s: s.non_keyed.process(lambda r, o, c: None), NonKeyed, "one-input | Process x2 | main forward | -"),
    (lambda s: s.non_keyed.process(s.two_out), TwoNonKeyed, "two-output | Two-Output-Process x2 | main forward | - -"),
    (lambda s: s.non_keyed.map(str), NonKeyed, "one-input | Map x2 | main forward | -"),
    (lambda s: s.non_keyed.filter(bool), NonKeyed, "one-input | Filter x2 | main forward | -"),
    (lambda s: s.non_keyed.flat_map(range), NonKeyed, "one-input | FlatMap x2 | main forward | -"),
    (lambda s: s.non_keyed.shuffle().process(s.one), NonKeyed, "one-input | Process x2 | main rebalance | -"),
    (lambda s: s.non_keyed.to_sink(CollectSink()), ConfiguredSink, "sink | Sink x2 | main forward | "),
    # a keyed stream
    (lambda s: s.keyed.process(s.one), NonKeyed, "one-input | KeyedProcess x2 | main hash str | -"),
    (lambda s: s.keyed.process(print), NonKeyed, "one-input | KeyedProcess x2 | main hash str | -"),
    (lambda s: s.keyed.process(s.one, new_key), Keyed, "one-input | KeyedProcess x2 | main hash str | new_key"),
    (lambda s: s.keyed.process(s.two_out), TwoNonKeyed, "two-output | Two-Output-Operator x2 | main hash str | - -"),
    (lambda s: s.keyed.process(s.two_out, second_key_selector=other_key, first_key_selector=new_key), TwoKeyed,
     "two-output | Two-Output-Operator x2 | main hash str | new_key other_key"),
    (lambda s: s.keyed.key_by(other_key).process(s.one), NonKeyed,
     "one-input | KeyedProcess x2 | main hash other_key | -"),
    (lambda s: s.keyed.shuffle().process(s.one), NonKeyed, "one-input | Process x2 | main rebalance | -"),
    (lambda s: s.keyed.global_().process(s.one), Global, "one-input | Global Process x1 | main global | -"),
    (lambda s: s.keyed.to_sink(CollectSink()), ConfiguredSink, "sink | Sink x2 | main hash str | "),
    # a global stream
    (lambda s: s.global_.process(s.one), Global, "one-input | Global Process x1 | main global | -"),
    (lambda s: s.global_.process(print), Global, "one-input | Global Process x1 | main global | -"),
    (lambda s: s.global_.process(s.two_out), TwoGlobalStreams, "two-output | Global Process x1 | main global | - -"),
    (lambda s: s.global_.key_by(str).process(s.one), NonKeyed, "one-input | KeyedProcess x2 | main hash str | -"),
    (lambda s: s.global_.shuffle().process(s.one), NonKeyed, "one-input | Process x2 | main rebalance | -"),
    (lambda s: s.global_.to_sink(CollectSink()), ConfiguredSink, "sink | Sink x1 | main global | "),
    # two inputs
    (lambda s: s.non_keyed.connect_and_process(s.other_non_keyed, s.two_in), NonKeyed,
     "two-input | TwoInput-Process x2 | main forward, side forward | -"),
    (lambda s: s.non_keyed.connect_and_process(s.broadcast, s.with_side), NonKeyed,
     "two-input-broadcast | Broadcast-TwoInput-Process x2 | main forward, side broadcast | -"),
    (lambda s: s.keyed.connect_and_process(s.other_keyed, s.two_in), NonKeyed,
     "two-input | Keyed-TwoInput-Process x2 | main hash str, side hash str | -"),
    (lambda s: s.keyed.connect_and_process(s.other_keyed, s.two_in, new_key), Keyed,
     "two-input | Keyed-TwoInput-Process x2 | main hash str, side hash str | new_key"),
    (lambda s: s.keyed.connect_and_process(s.broadcast, s.with_side), NonKeyed,
     "two-input-broadcast | Keyed-TwoInput-Broadcast-Process x2 | main hash str, side broadcast | -"),
    (lambda s: s.keyed.connect_and_process(s.broadcast, s.with_side, new_key), Keyed,
     "two-input-broadcast | Keyed-TwoInput-Broadcast-Process x2 | main hash str, side broadcast | new_key"),
    (lambda s: s.global_.connect_and_process(s.other_global, s.two_in), Global,
     "two-input | Global-Global-TwoInput-Process x1 | main global, side global | -"),
    # a broadcast stream receives the call but stays the second input
    (lambda s: s.broadcast.connect_and_process(s.keyed, s.with_side), NonKeyed,
     "two-input-broadcast | Keyed-TwoInput-Broadcast-Process x2 | main hash str, side broadcast | -"),
    (lambda s: s.broadcast.connect_and_process(s.keyed, s.with_side, new_key), Keyed,
     "two-input-broadcast | Keyed-TwoInput-Broadcast-Process x2 | main hash str, side broadcast | new_key"),
    (lambda s: s.broadcast.connect_and_process(s.non_keyed, s.with_side), NonKeyed,
     "two-input-broadcast | Broadcast-TwoInput-Process x2 | main forward, side broadcast | -"),
    (lambda s: s.other_keyed.broadcast().connect_and_process(s.non_keyed, s.with_side), NonKeyed,
     "two-input-broadcast | Broadcast-TwoInput-Process x2 | main forward, side broadcast | -"),
    (lambda s: s.other_global.broadcast().connect_and_process(s.non_keyed, s.with_side), NonKeyed,
     "two-input-broadcast | Broadcast-TwoInput-Process x2 | main forward, side broadcast | -"),
    # after a result
    (lambda s: s.keyed.process(s.one, new_key).process(s.one), NonKeyed,
     "one-input | KeyedProcess x2 | KeyedProcess forward new_key | -"),
    (lambda s: s.keyed.process(s.one, new_key).to_sink(CollectSink()), ConfiguredSink,
     "sink | Sink x2 | KeyedProcess forward new_key | "),
    (lambda s: kept(s).second.process(s.one), NonKeyed,
     "one-input | KeyedProcess x2 | Two-Output-Operator.second forward other_key | -"),
    (lambda s: s.keyed.connect_and_process(s.other_keyed, s.two_in, new_key).process(s.one), NonKeyed,
     "one-input | KeyedProcess x2 | Keyed-TwoInput-Process forward new_key | -"),
    (lambda s: s.global_.process(s.two_out).second.process(s.one), Global,
     "one-input | Global Process x1 | Global Process.second forward | -"),
    (lambda s: s.global_.process(s.one).key_by(str).process(s.one), NonKeyed,
     "one-input | KeyedProcess x2 | Global Process hash str | -"),
]
# fmt: on


@pytest.mark.parametrize(("build", "result", "expected"), ROWS)
def test_stream_table_row(env: ExecutionEnvironment, s: Any, build: Build, result: type, expected: str) -> None:
    assert type(build(s)) is result
    plan = env.build_plan()
    assert described(plan, plan.operators[-1]) == expected


def test_conversions_alone_add_nothing(env: ExecutionEnvironment, s: Any) -> None:
    s.non_keyed.process(s.one)
    s.keyed.key_by(other_key).shuffle().global_().key_by(str).broadcast()
    assert [operator.name for operator in env.build_plan().operators] == ["main", "side", "Process"]


def shape(plan: Plan) -> dict[str, tuple[int, str]]:
    """For each chain head, its depth and the members of the chain."""
    members = {head: " ".join(operator.name for operator in chain) for head, chain in plan.chains.items()}
    return {plan.operators[head].name: (plan.depths[head], names) for head, names in members.items()}


def diamond(s: Any) -> Any:
    a = s.non_keyed.process(s.one).with_name("A")
    b, c = a.process(s.one).with_name("B"), a.process(s.one).with_name("C")
    return b.connect_and_process(c, s.two_in).with_name("D").process(s.one).with_name("E")


def two_outputs(s: Any) -> None:
    both = s.non_keyed.process(s.two_out).with_name("A")
    both.second.process(s.one).with_name("C")
    both.first.process(s.one).with_name("B")


def a(s: Any) -> Any:
    return s.non_keyed.process(s.one).with_name("A")


def keyed_a(s: Any) -> Any:
    return s.keyed.process(s.one, new_key).with_name("A")


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda s: a(s).map(str).filter(bool).to_sink(CollectSink()), {"A": (1, "A Map Filter")}),
        (lambda s: [a_ := a(s), a_.map(str), a_.filter(bool)], {"A": (1, "A Map Filter")}),
        (diamond, {"A": (1, "A B C"), "D": (2, "D E")}),
        (two_outputs, {"A": (1, "A C B")}),
        (lambda s: s.non_keyed.connect_and_process(s.other_non_keyed, s.two_in).map(str),
         {"TwoInput-Process": (1, "TwoInput-Process Map")}),
        (lambda s: a(s).shuffle().map(str).connect_and_process(s.other_non_keyed, s.two_in),
         {"A": (1, "A"), "Map": (2, "Map"), "TwoInput-Process": (3, "TwoInput-Process")}),
        (lambda s: s.non_keyed.connect_and_process(a(s).broadcast(), s.with_side),
         {"A": (1, "A"), "Broadcast-TwoInput-Process": (2, "Broadcast-TwoInput-Process")}),
        (lambda s: keyed_a(s).process(s.one, new_key).process(s.one).map(str),
         {"A": (1, "A KeyedProcess KeyedProcess Map")}),
        (lambda s: a(s).key_by(str).process(s.one), {"A": (1, "A"), "KeyedProcess": (2, "KeyedProcess")}),
        (lambda s: keyed_a(s).process(s.one).with_parallelism(3), {"A": (1, "A"), "KeyedProcess": (2, "KeyedProcess")}),
        (lambda s: keyed_a(s).process(s.one).with_max_parallelism(4),
         {"A": (1, "A"), "KeyedProcess": (2, "KeyedProcess")}),
        (lambda s: a(s).map(str).with_parallelism(3), {"A": (1, "A"), "Map": (2, "Map")}),
        (lambda s: a(s).global_().process(s.one).with_name("B").process(s.one).with_name("C"),
         {"A": (1, "A"), "B": (2, "B C")}),
    ],
)  # fmt: skip
def test_chains_and_depths(
    env: ExecutionEnvironment, s: Any, build: Build, expected: dict[str, tuple[int, str]]
) -> None:
    build(s)
    assert shape(env.build_plan()) == expected


@pytest.mark.parametrize(
    ("build", "exchanges", "channels"),
    [
        (lambda s: a(s).map(str), ["forward"], [1]),
        (lambda s: a(s).with_parallelism(5).map(str), ["rebalance"], [5]),
        (lambda s: a(s).with_parallelism(5).map(str).with_parallelism(5), ["forward"], [1]),
        (lambda s: a(s).shuffle().map(str), ["rebalance"], [2]),
        (lambda s: a(s).with_parallelism(5).key_by(str).process(s.one), ["hash"], [5]),
        (lambda s: keyed_a(s).with_parallelism(5).process(s.one), ["hash"], [5]),
        (lambda s: keyed_a(s).with_max_parallelism(5).process(s.one), ["hash"], [2]),
        (lambda s: a(s).with_parallelism(5).global_().process(s.one), ["global"], [5]),
        (lambda s: s.non_keyed.connect_and_process(a(s).with_parallelism(5).broadcast(), s.with_side),
         ["forward", "broadcast"], [1, 5]),
        (diamond, ["forward"], [1]),
    ],
)  # fmt: skip
def test_channels_of_an_edge(
    env: ExecutionEnvironment, s: Any, build: Build, exchanges: list[str], channels: list[int]
) -> None:
    build(s)
    plan = env.build_plan()
    edges = plan.edges_into[plan.operators[-1].id]
    assert [edge.exchange.value for edge in edges] == exchanges
    assert [plan.channels_of(edge) for edge in edges] == channels


def test_edges_are_listed_by_input_and_by_output(env: ExecutionEnvironment, s: Any) -> None:
    two_outputs(s)
    s.broadcast.connect_and_process(s.non_keyed, s.with_side)
    plan = env.build_plan()
    (both,) = (operator.id for operator in plan.operators if operator.name == "A")
    assert [(e.output, plan.operators[e.target].name) for e in plan.edges_out_of[both]] == [(0, "B"), (1, "C")]
    assert [(e.input, plan.operators[e.source].name) for e in plan.edges_into[plan.operators[-1].id]] == [
        (0, "main"),
        (1, "side"),
    ]
    assert plan.edges_into[plan.operators[0].id] == ()


def configured(env: ExecutionEnvironment) -> tuple[str, str, int, int]:
    operator = env.build_plan().operators[-1]
    return operator.uid, operator.name, operator.parallelism, operator.max_parallelism


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.non_keyed,
        lambda s: s.non_keyed.process(s.one),
        lambda s: s.non_keyed.process(s.two_out),
        lambda s: kept(s),
        lambda s: s.non_keyed.to_sink(CollectSink()),
    ],
)
def test_every_handle_configures_its_operator(env: ExecutionEnvironment, s: Any, build: Build) -> None:
    s.other_non_keyed.map(str)
    made = build(s)
    assert made.with_uid("uid").with_name("test").with_parallelism(3).with_max_parallelism(4) is made
    (operator,) = (o for o in env.build_plan().operators if o.uid == "uid")
    assert (operator.name, operator.parallelism, operator.max_parallelism) == ("test", 3, 4)


@pytest.mark.parametrize(
    ("parallelism", "expected"), [(1, 128), (85, 128), (86, 256), (1000, 2048), (30000, 32768), (32768, 32768)]
)
def test_default_max_parallelism_as_in_flink(
    env: ExecutionEnvironment, s: Any, parallelism: int, expected: int
) -> None:
    s.non_keyed.map(str).with_parallelism(parallelism)
    assert configured(env)[2:] == (parallelism, expected)


def test_global_operator_is_not_parallel(env: ExecutionEnvironment, s: Any) -> None:
    s.global_.process(s.one).with_uid("u").with_name("n").with_parallelism(1).with_max_parallelism(1)
    assert configured(env) == ("u", "n", 1, 1)
    s.global_.process(s.one)
    assert configured(env)[2:] == (1, 1)


def test_sink_has_the_parallelism_of_its_input(env: ExecutionEnvironment, s: Any) -> None:
    s.non_keyed.map(str).with_parallelism(5).to_sink(CollectSink())
    assert configured(env)[2] == 5
    s.global_.process(s.one).to_sink(CollectSink()).with_name("of a global stream")
    assert configured(env)[1:3] == ("of a global stream", 1)
    s.global_.process(s.one).shuffle().to_sink(CollectSink())
    assert configured(env)[2] == 1


def test_default_uids_are_free(env: ExecutionEnvironment, s: Any) -> None:
    s.non_keyed.map(str)
    taken = next(o.uid for o in env.build_plan().operators if o.name == "Map")
    s.non_keyed.filter(bool).with_uid(taken)
    uids = [operator.uid for operator in env.build_plan().operators]
    assert len(set(uids)) == len(uids) == 4


@pytest.mark.parametrize(
    ("mode", "count", "resolved"),
    [
        ("STREAMING", 1, "STREAMING"),
        ("STREAMING", None, "STREAMING"),
        ("BATCH", 1, "BATCH"),
        ("AUTOMATIC", 1, "BATCH"),
        ("AUTOMATIC", None, "STREAMING"),
    ],
)
def test_execution_mode_is_resolved(
    env: ExecutionEnvironment, s: Any, mode: str, count: int | None, resolved: str
) -> None:
    s.non_keyed.connect_and_process(env.from_source(DataGeneratorSource(str, count=count)), s.two_in)
    env.set_execution_mode(RuntimeExecutionMode[mode])
    assert env.build_plan().mode is RuntimeExecutionMode[resolved]


def test_declarations_apply_to_the_whole_job(env: ExecutionEnvironment, s: Any) -> None:
    a, b = new_builder("a").type_long(), new_builder("b").type_bool()
    s.non_keyed.process(s.declaring([a.build(), b.build()])).process(s.declaring((a.build(),)))
    assert env.build_plan().declarations == {"a": a.build(), "b": b.build()}


class Recorder:
    """A runtime that only records the plan."""

    def __init__(self) -> None:
        self.started: list[tuple[Plan, RunOptions]] = []

    def start(self, plan: Plan, options: RunOptions) -> JobHandle:
        self.started.append((plan, options))
        return cast(JobHandle, self)


def test_execute_starts_the_plan_and_clears_the_environment() -> None:
    runtime = Recorder()
    env = ExecutionEnvironment.get_instance(runtime)
    for name in ("first", "second"):
        env.from_collection([1], name).to_sink(CollectSink())
        env.execute_async(f"{name} job", checkpoint_location="there", trigger=Trigger.processing_time(ms(5)))
    assert [(p.job_name, p.operators[0].name, len(p.operators)) for p, _ in runtime.started] == [
        ("first job", "first", 2),
        ("second job", "second", 2),
    ]
    assert [options for _, options in runtime.started] == [RunOptions("there", Trigger(interval_ms=5))] * 2
