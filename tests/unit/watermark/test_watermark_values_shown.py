"""Values of every type in the progress of a job, its reports, its files, its metrics, and in explanations."""

from __future__ import annotations

import json
from collections.abc import Collection, Set
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dsv2 import (
    Collector,
    CollectSink,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    PartitionedContext,
    Trigger,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    new_builder,
    on,
)
from dsv2.errors import ContractError, SerializationError
from dsv2.jobs.progress import JobProgress
from dsv2.jobs.watermark_report import Cause
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.sources.split_watermarks import value_from_json, value_to_json
from dsv2.streams import WaitForBroadcast
from dsv2.views.dashboard.json_lines import watermark_text
from dsv2.views.metrics.samples import samples_of
from dsv2.views.terminal.live_view import Summarizer
from dsv2.views.terminal.texts import line_of, value_text
from dsv2.watermark.holders import Order, holders_of_value, order_of
from tests.spans import Spans
from tests.support import local_environment


@dataclass(frozen=True)
class Model:
    name: str
    version: int


TAGS = new_builder("tags").type_set(str).build()
LOAD = new_builder("load").type_float().combine_function_sum().build()
MODEL = new_builder("model").type_of(Model).build()
CLOCK = new_builder("clock").type_vector().combine_wait_for_all_channels(True).build()


class Emits(OneInputStreamProcessFunction[int, int]):
    """Emits one watermark of each type. Only the subtask of even numbers emits the vector."""

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [TAGS, LOAD, MODEL, CLOCK]

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        emit = ctx.non_partitioned_context.watermark_manager.emit_watermark
        emit(TAGS.new_watermark({f"t{record}", "all"}))
        emit(LOAD.new_watermark(record / 4))
        emit(MODEL.new_watermark(Model("m", record)))
        if record % 2 == 0:
            emit(CLOCK.new_watermark({"p": record}))


class Receives(OneInputStreamProcessFunction[int, str]):
    def process_record(self, record: int, output: Collector[str], ctx: PartitionedContext[str]) -> None: ...

    @on(TAGS)
    def tags(
        self, watermark: Watermark[Set[str]], output: Collector[str], ctx: NonPartitionedContext[str]
    ) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK


@pytest.fixture(scope="module")
def job() -> Any:
    env = local_environment(2)
    numbers = env.from_source(Spans({"a": 6}, bounded=False)).with_parallelism(1).map(lambda item: item.number)
    sent = numbers.with_parallelism(1).shuffle().process(Emits()).with_uid("emits")
    sent.process(Receives()).with_uid("receives").with_parallelism(1).to_sink(CollectSink())
    running = env.execute_async("values", trigger=Trigger.available_now())
    running.await_termination()
    return running


def test_progress_has_texts_of_values_that_json_does_not_have(job: Any) -> None:
    subtask = job.progress.operators["receives"].subtasks[0]
    assert subtask.watermarks == {"tags": "{all, t4, t5}", "load": 2.25, "model": "Model(name='m', version=5)"}
    first = subtask.inputs[0].channels[0]
    assert first.watermarks == {
        "tags": "{all, t4}",
        "load": 1.0,
        "model": "Model(name='m', version=4)",
        "clock": "{p: 4}",
    }
    stored = msgspec.json.encode(job.progress)
    assert json.loads(stored)
    assert msgspec.json.decode(stored, type=JobProgress) == job.progress


@pytest.mark.parametrize(
    ("identifier", "cause", "sentence"),
    [
        ("tags", Cause.NOT_EMITTED, "The watermark 'tags' of 'receives' is {all, t4, t5}; channel"),
        ("load", Cause.NOT_EMITTED, "The watermark 'load' of 'receives' is 2.25; channel"),
        ("model", Cause.NOT_EMITTED, "The watermark 'model' of 'receives' is Model(name='m', version=5); channel"),
        ("clock", Cause.NOT_EMITTED, "'receives' has not received the watermark 'clock' yet; channel 1 ('emits', "),
    ],
)
def test_reports_cope_with_every_type(job: Any, identifier: str, cause: Cause, sentence: str) -> None:
    report = job.watermarks(identifier, "receives")["receives"]
    assert report.sentence.startswith(sentence), report.sentence
    assert report.cause in (cause, Cause.NOTHING)
    assert sum(channel.holds_back for channel in report.inputs[0].channels) == 1


def test_metrics_have_numbers_only(job: Any) -> None:
    running: Any = SimpleNamespace(name="values", progress=job.progress, awaiting=())
    samples = samples_of(running, per_subtask=False, per_split=False)
    found = {sample.labels["watermark"]: sample.value for sample in samples if "watermark" in sample.labels}
    assert found == {"load": 2.25}


def test_the_terminal_shows_texts(job: Any) -> None:
    line = line_of("values", Summarizer(job.plan).summary(job.progress))
    assert "tags {all, t4, t5}" in line
    assert "load 2.25" in line


def test_texts_of_values() -> None:
    assert value_text(1234.5) == "1,234.5"
    assert value_text("{a}") == "{a}"
    assert watermark_text("tags", "{a}") == "{a}"
    assert watermark_text("load", 0.5) == "0.5"


def test_explanations_show_types_and_combinations() -> None:
    def rises(new: str, old: str | None) -> bool:
        return old is None or new > old

    declared = new_builder("w").type_str().combine_function_max().deliver_when(rises).build()
    across = new_builder("x").type_long().combine_across_inputs(True, LOAD.combination_policy.combination_function)
    env = local_environment()
    function = Declares([declared, across.build(), LOAD, MODEL])
    env.from_collection([1]).process(function).to_sink(CollectSink())
    text = str(env.explain())
    assert "w  [str, max, delivered when test_explanations_show_types_and_combinations.<locals>.rises]" in text
    assert "x  [long, min, combined across inputs with sum]" in text
    assert "load  [float, sum, not forwarded]" in text
    assert "model  [Model, last]" in text
    assert '"combination": "sum"' in env.explain(format="json").render("json")
    for format in ("mermaid", "svg"):
        assert env.explain().render(format)


class Declares(OneInputStreamProcessFunction[int, int]):
    def __init__(self, declarations: list[WatermarkDeclaration]) -> None:
        self._declarations = declarations

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return self._declarations

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None: ...


class Hidden:
    """Not data, because it defines how it is pickled."""

    def __reduce__(self) -> Any:
        return Hidden, ()


@dataclass(frozen=True)
class WithHidden(Hidden):
    number: int


def test_values_that_cannot_be_sent_are_refused_before_the_job_starts() -> None:
    env = local_environment()
    declared = new_builder("odd").type_of(WithHidden).build()
    env.from_collection([1]).process(Declares([declared])).to_sink(CollectSink())
    with pytest.raises(SerializationError, match=r"The values of watermark 'odd' cannot be sent\. "):
        TypeRegistry.of(env.build_plan())


@pytest.mark.parametrize(
    "declared",
    [TAGS.new_watermark({"b", "a"}), CLOCK.new_watermark({"p": 1}), LOAD.new_watermark(0.5)],
)
def test_watermarks_of_enumerators_are_part_of_offsets(declared: Watermark) -> None:
    stored = json.loads(json.dumps(value_to_json(declared)))
    found = value_from_json(stored)
    assert found == declared.value
    assert type(found) is type(declared.value)


def test_enumerators_cannot_emit_data_classes() -> None:
    with pytest.raises(ContractError, match="The enumerator of a source cannot emit"):
        value_to_json(MODEL.new_watermark(Model("a", 1)))


@pytest.mark.parametrize(
    ("until", "over", "not_over"),
    [
        (TAGS.new_watermark({"a", "b"}), {"a", "b", "c"}, {"a", "c"}),
        (CLOCK.new_watermark({"p": 3}), {"p": 3, "q": 0}, {"p": 2, "q": 9}),
        (MODEL.new_watermark(Model("a", 2)), Model("a", 2), Model("a", 3)),
        (LOAD.new_watermark(2), 2.5, 1.5),
    ],
)
def test_broadcast_side_is_complete_with_a_value_of_any_type(until: Any, over: Any, not_over: Any) -> None:
    declaration = {one.identifier: one for one in (TAGS, CLOCK, MODEL, LOAD)}[until.identifier]
    wait = WaitForBroadcast(until=until)
    assert wait.is_over(until.identifier, declaration.new_watermark(over).value)
    assert not wait.is_over(until.identifier, declaration.new_watermark(not_over).value)
    assert not wait.is_over("other", declaration.new_watermark(over).value)
    assert WaitForBroadcast(until=declaration).is_over(until.identifier, declaration.new_watermark(not_over).value)


@pytest.mark.parametrize(
    ("value_type", "combination", "order"),
    [
        ("long", "min", Order.LEAST), ("str", "max", Order.GREATEST), ("float", "quantile(0.5)", Order.LEAST),
        ("bool", "at_least(2)", Order.LEAST), ("float", "sum", Order.ANY), ("vector", "max", Order.ANY),
        ("Model", "min", Order.ANY), ("set of str", "union", Order.ANY),
    ],
)  # fmt: skip
def test_order_in_which_channels_hold_a_value_back(value_type: str, combination: str, order: Order) -> None:
    assert order_of(value_type, combination) is order


def test_holders_of_values_without_an_order() -> None:
    values = {1: frozenset("a"), 2: frozenset("b")}
    assert holders_of_value(values, [0, 1, 2], order=Order.ANY, waits_for_all=False) == [0, 1, 2]
    assert holders_of_value(values, [0, 1, 2], order=Order.ANY, waits_for_all=True) == [0]
    assert holders_of_value({0: "b", 1: "a"}, [0, 1], order=Order.LEAST, waits_for_all=False) == [1, 0]
