"""Watermarks that are addressed to operators or groups: who receives them, and which edges carry them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

import pytest

from dsv2 import (
    Collector,
    CollectSink,
    ExecutionEnvironment,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    PartitionedContext,
    TwoInputBroadcastStreamProcessFunction,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    new_builder,
)
from dsv2.errors import ConfigurationError, PlanError, WatermarkDeclarationError
from dsv2.local import LocalRuntime
from dsv2.streams import ConfiguredStream, WaitForBroadcast
from dsv2.testing import OneInputHarness
from dsv2.views.explain import Severity
from dsv2.watermark import LongWatermarkBuilder, LongWatermarkDeclaration

Seen = tuple[str, int]


def declare(**settings: Any) -> LongWatermarkBuilder:
    return new_builder("done").type_long().combine_function_max()


class Emit(OneInputStreamProcessFunction[int, Seen]):
    """Emits each record as a watermark."""

    def __init__(self, declaration: LongWatermarkDeclaration) -> None:
        self.declaration = declaration

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [self.declaration]

    def process_record(self, record: int, output: Collector[Seen], ctx: PartitionedContext[Seen]) -> None:
        output.collect(("", record))
        manager = ctx.non_partitioned_context.watermark_manager
        manager.emit_watermark(self.declaration.new_watermark(record))


class Watch(OneInputStreamProcessFunction[Seen, Seen]):
    """Passes records on, and emits what it receives with the name of its operator."""

    def __init__(self, result: WatermarkHandlingResult = WatermarkHandlingResult.PEEK) -> None:
        self.result = result

    def process_record(self, record: Seen, output: Collector[Seen], ctx: PartitionedContext[Seen]) -> None:
        output.collect(record)

    def on_watermark(
        self, watermark: Watermark, output: Collector[Seen], ctx: NonPartitionedContext[Seen]
    ) -> WatermarkHandlingResult:
        output.collect((ctx.task_info.task_name, watermark.value))
        return self.result


Pipeline = tuple[ExecutionEnvironment, CollectSink[Seen]]


def in_a_row(declaration: LongWatermarkDeclaration, *, exchanged: bool, polling: str = "") -> Pipeline:
    """The emitter, then operators a, b and c. b is in the group ``group``."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(seed=1))
    sink = CollectSink[Seen]()
    stream: ConfiguredStream[Seen] = env.from_collection([1, 2]).process(Emit(declaration)).with_uid("emit")
    for name in "abc":
        result = WatermarkHandlingResult.POLL if name == polling else WatermarkHandlingResult.PEEK
        function = Watch(result)
        stream = (stream.shuffle().process(function) if exchanged else stream.process(function)).with_uid(name)
        stream.with_name(name).with_parallelism(2 if exchanged else 1)
        if name == "b":
            stream.with_group("group")
    stream.to_sink(sink)
    return env, sink


@pytest.mark.parametrize("exchanged", [False, True])
@pytest.mark.parametrize(
    ("address", "receivers"),
    [
        (lambda builder: builder, "abc"),
        (lambda builder: builder.deliver_to("a"), "a"),
        (lambda builder: builder.deliver_to("b"), "b"),
        (lambda builder: builder.deliver_to("a", "c"), "ac"),
        (lambda builder: builder.deliver_to("c").deliver_to_group("group"), "bc"),
        (lambda builder: builder.deliver_to_group("group"), "b"),
        (lambda builder: builder.deliver_to("c").default_handling_strategy_ignore(), "c"),
        (lambda builder: builder.deliver_to("a", "b").default_handling_strategy_ignore(), None),
    ],
)
def test_only_addressed_operators_receive_it(
    address: Callable[[LongWatermarkBuilder], LongWatermarkBuilder], receivers: str | None, exchanged: bool
) -> None:
    """Others pass it on, even if it is declared to be ignored. The addressed ones then end it."""
    declaration = address(declare()).build()
    env, sink = in_a_row(declaration, exchanged=exchanged)
    if receivers is None:
        with pytest.raises(WatermarkDeclarationError, match=r"cannot reach b .*, or only behind one that ends it"):
            env.execute()
        return
    env.execute()
    assert {name for name, _ in sink.results if name} == set(receivers)
    assert {value for name, value in sink.results if name} >= {2}


def test_addressed_operator_may_poll_it() -> None:
    env, sink = in_a_row(declare().deliver_to("a", "c").build(), exchanged=False, polling="a")
    env.execute()
    assert [seen for seen in sink.results if seen[0]] == [("a", 1), ("a", 2)]


def test_result_of_other_operators_does_not_count() -> None:
    env, sink = in_a_row(declare().deliver_to("c").build(), exchanged=False, polling="a")
    env.execute()
    assert [seen for seen in sink.results if seen[0]] == [("c", 1), ("c", 2)]


def test_unions_pass_an_ignored_watermark_on() -> None:
    declaration = declare().deliver_to("c").default_handling_strategy_ignore().build()
    env = ExecutionEnvironment.get_instance(LocalRuntime(seed=1))
    sink = CollectSink[Seen]()
    one, other = (env.from_collection([number]).process(Emit(declaration)).with_uid(f"{number}") for number in (1, 2))
    one.union(other).process(Watch()).with_uid("c").with_name("c").to_sink(sink)
    env.execute()
    assert ("c", 2) in sink.results


@pytest.mark.parametrize("strategy", ["forward", "ignore"])
def test_edges_to_others_do_not_carry_it(strategy: Literal["forward", "ignore"]) -> None:
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(2)
    declaration = declare().deliver_to("c").default_handling_strategy(strategy).build()
    emit = env.from_collection([1]).process(Emit(declaration)).with_uid("emit")
    before = emit.shuffle().process(Watch()).with_uid("before")
    before.shuffle().process(Watch()).with_uid("c").shuffle().process(Watch()).with_uid("after").to_sink(CollectSink())
    emit.process(Watch()).with_uid("aside").to_sink(CollectSink())
    plan = env.build_plan()
    uids = {operator.id: operator.uid for operator in plan.operators}
    functions = {uids[edge.target]: set(edge.without) for edge in plan.edges if "Sink" not in uids[edge.target]}
    assert {uid: functions[uid] for uid in ("before", "c", "after", "aside")} == {
        "before": set(),
        "c": set(),
        "after": {"done"},
        "aside": {"done"},
    }
    passes_on = {operator.uid for operator in plan.operators if operator.passes_on}
    assert passes_on.issuperset({"before", "after", "aside"})
    assert "c" not in passes_on
    # Every value reaches c, also by way of ``before``. ``after`` is not called, although it overrides on_watermark.
    edges = {uids[edge.target]: edge for edge in plan.edges}
    assert edges["after"].last_only == {"done"}
    assert edges["before"].last_only == edges["c"].last_only == set()


def test_chained_function_behind_an_edge_that_does_not_carry_it() -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(seed=1))
    seen, sink = CollectSink[Seen](), CollectSink[Seen]()
    emit = env.from_collection([1]).process(Emit(declare().deliver_to("c").build())).with_uid("emit")
    emit.process(Watch()).with_uid("c").with_name("c").to_sink(seen)
    emit.process(Watch()).with_uid("aside").with_name("aside").to_sink(sink)
    operators = env.execute().progress.operators
    assert (seen.results, sink.results) == ([("", 1), ("c", 1)], [("", 1)])
    assert operators["c"].watermarks == {"done": (1,)}
    assert operators["aside"].watermarks == {}


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (
            lambda builder: builder.deliver_to("closing"),
            r"Watermark 'done', declared by Process \(uid 'emit'\) at .*, is addressed to the uid 'closing', which no "
            r"operator has. The uids that the program sets on functions: 'close', 'a', 'emit'.",
        ),
        (lambda builder: builder.deliver_to("a", "emit"), "cannot reach Process .uid 'emit'. at .*, which it is addr"),
        (lambda builder: builder.deliver_to("sink"), r"is addressed to .*'sink'.*, which is a sink and has no on_wate"),
        (
            lambda builder: builder.deliver_to_group("grope"),
            r"is addressed to the group 'grope', which has no operator. Groups with operators: 'group', 'other'.",
        ),
        (lambda builder: builder.deliver_to_group("other"), "the group 'other', but cannot reach .*'emit'"),
    ],
)
def test_addresses_without_effect_are_refused(
    address: Callable[[LongWatermarkBuilder], LongWatermarkBuilder], message: str
) -> None:
    env = ExecutionEnvironment.get_instance("local")
    emit = env.from_collection([1]).process(Emit(address(declare()).build())).with_uid("emit").with_group("other")
    stream = emit.process(Watch()).with_uid("a").with_group("group").process(Watch()).with_uid("close")
    stream.to_sink(CollectSink()).with_uid("sink")
    with pytest.raises(WatermarkDeclarationError, match=message):
        env.build_plan()


@pytest.mark.parametrize("addressed", ["next", "last"])
def test_combination_that_copies_would_change_is_not_passed_on(addressed: str) -> None:
    declaration = new_builder("done").type_long().combine_function_sum().deliver_to(addressed).build()
    env = ExecutionEnvironment.get_instance("local")
    emit = env.from_collection([1]).process(Emit(declaration)).with_uid("emit").process(Watch()).with_uid("next")
    emit.process(Watch()).with_uid("last").to_sink(CollectSink())
    if addressed == "next":
        env.build_plan()
        return
    with pytest.raises(
        WatermarkDeclarationError, match=r"is combined with sum, so .*'next'.* cannot pass it on: the next"
    ):
        env.build_plan()


def test_waiting_for_a_watermark_of_others_is_refused() -> None:
    class Main(TwoInputBroadcastStreamProcessFunction[Seen, Seen, Seen]):
        def process_record_from_non_broadcast_input(
            self, record: Seen, output: Collector[Seen], ctx: PartitionedContext[Seen]
        ) -> None: ...

        def process_record_from_broadcast_input(self, record: Seen, ctx: NonPartitionedContext[Seen]) -> None: ...

    declaration = declare().combine_wait_for_all_channels(True).deliver_to("c").build()
    env = ExecutionEnvironment.get_instance("local")
    rules = env.from_collection([1]).process(Emit(declaration)).with_uid("emit")
    main = env.from_collection([("", 1)])
    wait = WaitForBroadcast(declaration)
    both = main.connect_and_process(rules.broadcast(), Main(), wait_for_broadcast=wait).with_uid("both")
    both.process(Watch()).with_uid("c").to_sink(CollectSink())
    with pytest.raises(PlanError, match=r"addressed to other operators. Address it to this one as well: deliver_to\('"):
        env.build_plan()


@pytest.mark.parametrize("names", [(), ("",), ("a", 3)])
def test_names_are_checked(names: Any) -> None:
    for method in (declare().deliver_to, declare().deliver_to_group):
        with pytest.raises(WatermarkDeclarationError, match=r"at least one|non-empty string"):
            method(*names)


def test_only_functions_are_in_groups() -> None:
    env = ExecutionEnvironment.get_instance("local")
    source = env.from_collection([1])
    for handle in (source, source.union(env.from_collection([2])), source.to_sink(CollectSink())):
        with pytest.raises(ConfigurationError, match="only functions can be in a group"):
            handle.with_group("g")
    with pytest.raises(ConfigurationError, match="A group must be a non-empty string"):
        source.process(Emit(declare().build())).with_group("")


def test_part_of_a_pipeline_need_not_have_the_addressed_operators() -> None:
    env = ExecutionEnvironment.get_instance("local")
    emit = env.from_collection([1, 2]).process(Emit(declare().deliver_to("c").build())).with_uid("emit")
    emit.process(Watch()).with_uid("c").to_sink(CollectSink())
    assert emit.take(2) == [("", 1), ("", 2)]


def test_harness_delivers_whatever_the_address() -> None:
    declaration = declare().deliver_to("totals").deliver_to_group("group").build()
    receiver = OneInputHarness(Watch(), declarations=[declaration])
    receiver.input.push_watermark(declaration.new_watermark(3))
    assert receiver.output.records == [("Process", 3)]
    assert receiver.output.watermarks == [declaration.new_watermark(3)]
    emitter = OneInputHarness(Emit(declaration))
    emitter.input.push(3)
    assert emitter.output.watermarks == [declaration.new_watermark(3)]


def test_different_addresses_are_different_declarations() -> None:
    env = ExecutionEnvironment.get_instance("local")
    emit = env.from_collection([1]).process(Emit(declare().deliver_to("c").build()))
    emit.map(lambda seen: seen[1]).process(Emit(declare().build())).with_uid("c").to_sink(CollectSink())
    with pytest.raises(WatermarkDeclarationError, match=r"(?s)two different declarations.*uids=\('c',\)"):
        env.build_plan()


def explained() -> ExecutionEnvironment:
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(2)
    builder = declare().deliver_to("idle").deliver_to_group("group")
    emit = env.from_collection([1]).process(Emit(builder.build())).with_uid("emit")
    emit.shuffle().process(Watch()).with_uid("a").with_group("group").to_sink(CollectSink())
    emit.map(lambda seen: seen).with_uid("idle").to_sink(CollectSink())
    emit.shuffle().process(Watch()).with_uid("aside").to_sink(CollectSink())
    env.from_collection([("", 1)]).process(Watch()).with_uid("far").with_group("group").to_sink(CollectSink())
    return env


def test_explanation() -> None:
    explanation = explained().explain()
    view, text = explanation.view, str(explanation)
    ids = {operator.uid: operator.id for operator in view.operators}
    (watermark,) = view.watermarks
    assert watermark.addressed_to == tuple(sorted(ids[uid] for uid in ("a", "idle", "far")))
    assert watermark.handled_by == (ids["a"],)
    assert "addressed to a, idle, far" in text
    assert "addressed by: done" in text
    assert "groups: group" in text
    assert "from emit: rebalance, without done" in text
    for form in ("mermaid", "svg", "json"):
        assert "without" in str(explained().explain(form))
        assert "group" in str(explained().explain(form))


def test_findings() -> None:
    view = explained().explain().view
    titles = {operator.id: operator.title for operator in view.operators}
    found = {(finding.code, titles[finding.operators[0]]): finding.severity for finding in view.findings}
    assert found["addressed-without-handler", "idle"] is Severity.WARNING
    assert found["group-member-not-reached", "far"] is Severity.NOTE
    assert found["handler-never-called", "aside"] is Severity.NOTE
    assert ("addressed-without-handler", "a") not in found
    assert "other operators: done" in next(f.message for f in view.findings if titles[f.operators[0]] == "aside")


def test_finding_for_a_handler_that_is_passed_by() -> None:
    env, _ = in_a_row(declare().deliver_to("c").build(), exchanged=False)
    view = env.explain().view
    titles = {operator.id: operator.title for operator in view.operators}
    found = {titles[finding.operators[0]]: finding.message for finding in view.findings}
    assert "all watermarks that arrive there are addressed to other operators: done." in found["a"]
    assert "c" not in found
