"""Per-key watermarks in plans: their declarations, the operators that cannot handle them, and what explanations say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dsv2 import Collector, CollectSink, ExecutionEnvironment, PartitionedContext, WatermarkDeclaration, new_builder
from dsv2.errors import InvalidWatermarkError, WatermarkDeclarationError
from dsv2.functions import AsyncOneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.sources import DataGeneratorSource
from dsv2.streams import WaitForBroadcast
from dsv2.watermark import KeyedWatermarkDeclaration
from tests.support import broadcast_side
from tests.unit.runtime.operator.test_key_watermarks import (
    DONE,
    Emit,
    Passing,
    Visit,
    Watch,
    WithHandlers,
    user_of,
    visits,
)


def plan_with(build: Callable[[Any], Any], declaration: Any = DONE) -> None:
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(2)
    emitted = env.from_collection(visits(2, 1)).process(Emit(declaration)).with_uid("emit")
    build(emitted).with_uid("last").to_sink(CollectSink())
    env.build_plan()


class Unordered(AsyncOneInputStreamProcessFunction[Visit, Visit]):
    async def process_record(self, record: Visit, output: Collector[Visit], ctx: PartitionedContext[Visit]) -> None: ...


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda emitted: emitted.shuffle().process(Passing()).key_by(user_of).process(Watch()), "has several channels"),
        (lambda emitted: emitted.union(emitted).key_by(user_of).process(Watch()), "has several channels but no keys"),
        (lambda emitted: emitted.key_by(user_of).process(Unordered()), "which is an async function"),
        (lambda emitted: emitted.key_by(lambda visit: str(visit)).process(Watch()), None),
        (lambda emitted: emitted.key_by(name_of).process(Watch()), "whose key selector returns another type than int"),
        (lambda emitted: emitted.process(Passing()).key_by(user_of).process(Watch()), None),
    ],
)
def test_operators_that_cannot_handle_it_are_refused(build: Callable[[Any], Any], problem: str | None) -> None:
    if problem is None:
        plan_with(build)
        return
    with pytest.raises(WatermarkDeclarationError, match=f"The per-key watermark 'done' reaches .*{problem}"):
        plan_with(build)


def test_broadcast_side_is_not_waited_for_by_key() -> None:
    env = ExecutionEnvironment.get_instance("local")
    numbers = env.from_collection(visits(2, 1))
    declaration = new_builder("done").type_long().combine_wait_for_all_channels(True).per_key(int).build()
    rules = numbers.process(Emit(declaration)).with_uid("emit").broadcast()
    wait = WaitForBroadcast(declaration)
    both: Any = (
        numbers.key_by(user_of).connect_and_process(rules, broadcast_side(), wait_for_broadcast=wait).with_uid("both")
    )
    both.to_sink(CollectSink())
    with pytest.raises(WatermarkDeclarationError, match="Wait for a watermark that is not about a key"):
        env.build_plan()


def name_of(visit: Visit) -> str:
    return str(visit.user)


def test_addressed_per_key_watermark() -> None:
    """Other keyed functions do not receive it, and it does not pass them."""
    declaration = new_builder("done").type_long().deliver_to("last").per_key(int).build()
    env = ExecutionEnvironment.get_instance(LocalRuntime(seed=1))
    last, other = CollectSink[Any](), CollectSink[Any]()
    emitted = env.from_collection(visits(2, -1)).process(Emit(declaration)).with_uid("emit")
    emitted.key_by(user_of).process(Watch()).with_uid("last").to_sink(last)
    emitted.key_by(user_of).process(Watch()).with_uid("other").to_sink(other)
    env.execute()
    assert (sorted(last.results), other.results) == ([(0, 0, 1), (1, 1, 1)], [])
    with pytest.raises(WatermarkDeclarationError, match=r"cannot reach KeyedProcess .uid 'last'"):
        plan_with(lambda emit: emit.key_by(user_of).process(Passing()).key_by(user_of).process(Watch()), declaration)


def test_handler_without_keys_is_refused() -> None:
    with pytest.raises(WatermarkDeclarationError, match="it is about one key, so only keyed functions receive it"):
        plan_with(lambda emitted: emitted.process(WithHandlers()))


@pytest.mark.parametrize("key_type", [list, None, 3, dict])
def test_key_type_is_checked(key_type: Any) -> None:
    with pytest.raises(WatermarkDeclarationError, match="per_key takes the type of the keys"):
        new_builder("done").type_long().per_key(key_type)


@pytest.mark.parametrize("key", ["7", None, True, 7.0])
def test_key_is_checked(key: Any) -> None:
    with pytest.raises(InvalidWatermarkError, match=r"was declared with per_key\(int\): the key must be of this type"):
        DONE.new_watermark(1, key=key)


def test_value_is_checked() -> None:
    with pytest.raises(InvalidWatermarkError, match="must be a signed 64-bit integer"):
        DONE.new_watermark("1", key=1)  # type: ignore[arg-type]


def test_generic_types_of_keys() -> None:
    declaration = new_builder("done").type_bool().per_key(tuple[int, str]).build()
    assert declaration.scope.key_type is tuple
    assert declaration.new_watermark(True, key=(1, "a")).key == (1, "a")
    with pytest.raises(InvalidWatermarkError):
        declaration.new_watermark(True, key=1)  # type: ignore[arg-type]


def test_settings_that_contradict_each_other() -> None:
    waiting = new_builder("done").type_long().combine_wait_for_all_channels(True)
    for builder in (waiting.aligned(), new_builder("done").type_long().combine_across_inputs(True)):
        with pytest.raises(WatermarkDeclarationError, match=r"cannot be (aligned|combined across inputs)"):
            builder.per_key(int).build()


def test_declaration_without_a_key_is_another_one() -> None:
    plain: WatermarkDeclaration = new_builder("done").type_long().combine_function_max().build()
    assert plain != DONE
    env = ExecutionEnvironment.get_instance("local")
    emitted = env.from_collection(visits(1, 1)).process(Emit()).process(Emit(plain))
    emitted.to_sink(CollectSink())
    with pytest.raises(WatermarkDeclarationError, match="two different declarations"):
        env.build_plan()


def test_explanation_and_findings() -> None:
    env = ExecutionEnvironment.get_instance("local")
    emitted = env.from_collection(visits(2, 1)).process(Emit()).with_uid("emit")
    emitted.key_by(user_of).process(Watch()).with_uid("watch").key_by(repr).process(Watch()).with_uid("far").to_sink(
        CollectSink()
    )
    explanation = env.explain()
    text, (watermark,) = str(explanation), explanation.view.watermarks
    titles = {operator.id: operator.title for operator in explanation.view.operators}
    assert "done  [long, max, about one int key]" in text
    assert "handles watermarks: on_key_watermark" in text
    assert [titles[number] for number in watermark.received_by] == ["watch"]
    assert [titles[number] for number in watermark.handled_by] == ["watch"]
    assert watermark.key_type == "int"
    assert isinstance(DONE, KeyedWatermarkDeclaration)


@pytest.mark.parametrize("expires", [False, True])
def test_finding_for_values_that_are_kept_for_every_key(expires: bool) -> None:
    builder = new_builder("done").type_long()
    declaration = (builder.expire_after(timedelta(hours=1)) if expires else builder).per_key(int).build()
    env = ExecutionEnvironment.get_instance("local")
    endless = env.from_source(DataGeneratorSource(lambda index: Visit(index, 1)))
    endless.process(Emit(declaration)).key_by(user_of).process(Watch()).with_uid("watch").to_sink(CollectSink())
    codes = {finding.code for finding in env.explain().view.findings}
    assert ("per-key-without-expiry" in codes) != expires
