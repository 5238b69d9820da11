"""Watermark declarations: what the builder makes, equality, and invalid values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dsv2 import Collector, CollectSink, ExecutionEnvironment, PartitionedContext, WatermarkDeclarations
from dsv2.errors import InvalidWatermarkError, UserFunctionError, WatermarkDeclarationError
from dsv2.extension.event_time import declarations
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.watermark import (
    BoolWatermark,
    BoolWatermarkCombinationFunction,
    BoolWatermarkDeclaration,
    LongWatermark,
    LongWatermarkBuilder,
    LongWatermarkDeclaration,
    NumericWatermarkCombinationFunction,
    Watermark,
    WatermarkCombinationPolicy,
    WatermarkDeclaration,
    WatermarkHandlingStrategy,
    new_builder,
)

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1


MIN, MAX = NumericWatermarkCombinationFunction.MIN, NumericWatermarkCombinationFunction.MAX
AND, OR = BoolWatermarkCombinationFunction.AND, BoolWatermarkCombinationFunction.OR
FORWARD, IGNORE = WatermarkHandlingStrategy.FORWARD, WatermarkHandlingStrategy.IGNORE


def test_defaults() -> None:
    long = LongWatermarkDeclaration("Id", WatermarkCombinationPolicy(MIN, False, False, False), FORWARD)
    assert new_builder("Id").type_long().build() == long
    either = BoolWatermarkDeclaration("Id", WatermarkCombinationPolicy(AND, False, False, False), FORWARD)
    assert new_builder("Id").type_bool().build() == either


def test_long_with_all_settings() -> None:
    builder = new_builder("w").type_long().combine_function_max().combine_wait_for_all_channels(True)
    built = builder.aligned().combine_across_inputs(True).default_handling_strategy_ignore().build()
    assert built == LongWatermarkDeclaration("w", WatermarkCombinationPolicy(MAX, True, True, True), IGNORE)


def test_bool_with_all_settings() -> None:
    builder = new_builder("w").type_bool().combine_function_or().combine_wait_for_all_channels(True)
    built = builder.aligned().combine_across_inputs(True).default_handling_strategy(IGNORE).build()
    assert built == BoolWatermarkDeclaration("w", WatermarkCombinationPolicy(OR, True, True, True), IGNORE)


def test_last_call_of_a_builder_wins() -> None:
    long = new_builder("w").type_long().combine_function_max().combine_function_min()
    undone = long.default_handling_strategy_ignore().default_handling_strategy_forward()
    assert undone.combine_wait_for_all_channels(True).combine_wait_for_all_channels(False).build() == (
        new_builder("w").type_long().build()
    )
    either = new_builder("w").type_bool().combine_function_or().combine_function_and()
    assert either.build() == new_builder("w").type_bool().build()


@pytest.mark.parametrize("typed", [new_builder("w").type_long(), new_builder("w").type_bool()])
def test_aligned_requires_waiting_for_all(typed: LongWatermarkBuilder) -> None:
    with pytest.raises(WatermarkDeclarationError, match="must wait for all channels"):
        typed.aligned().build()


@pytest.mark.parametrize("identifier", ["", None, 7])
def test_identifier_is_a_non_empty_string(identifier: str) -> None:
    with pytest.raises(WatermarkDeclarationError, match="non-empty string"):
        new_builder(identifier)


def test_identifiers_of_event_time_are_reserved() -> None:
    """In Flink a program may declare them differently, and fails when event time is used as well."""
    for declaration in (declarations.EVENT_TIME, declarations.IDLE_STATUS, declarations.USE_PROCESSING_TIME):
        with pytest.raises(WatermarkDeclarationError, match="begin with BUILTIN_API_ are reserved for event time"):
            new_builder(declaration.identifier)


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b.combine_function_max(),
        lambda b: b.combine_wait_for_all_channels(False).aligned(False),
        lambda b: b.aligned(False),
        lambda b: b.combine_across_inputs(True),
        lambda b: b.default_handling_strategy_ignore(),
    ],
    ids=["function", "wait", "aligned", "across inputs", "strategy"],
)
def test_every_part_counts_for_equality(change: Callable[[LongWatermarkBuilder], LongWatermarkBuilder]) -> None:
    """Flink leaves ``isAligned`` out, so one of two such declarations is dropped arbitrarily."""

    def waiting() -> LongWatermarkBuilder:
        return new_builder("w").type_long().combine_wait_for_all_channels(True).aligned()

    assert waiting().build() == waiting().build()
    assert hash(waiting().build()) == hash(waiting().build())
    assert change(waiting()).build() != waiting().build()


def test_identifiers_are_case_sensitive_and_types_differ() -> None:
    long, bool_ = new_builder("w").type_long().build(), new_builder("w").type_bool().build()
    assert long != new_builder("W").type_long().build()
    assert len({long, bool_}) == 2


def test_watermarks_carry_value_and_identifier() -> None:
    long, bool_ = new_builder("n").type_long().build(), new_builder("b").type_bool().build()
    assert long.new_watermark(5) == LongWatermark(5, "n")
    assert bool_.new_watermark(False) == BoolWatermark(False, "b")
    assert long.new_watermark(5) != LongWatermark(5, "m")
    one: Watermark = LongWatermark(1, "w")
    assert one != BoolWatermark(True, "w")


@pytest.mark.parametrize("value", [LONG_MIN, -1, 0, LONG_MAX])
def test_long_has_64_bits(value: int) -> None:
    assert new_builder("w").type_long().build().new_watermark(value).value == value


@pytest.mark.parametrize("value", [LONG_MIN - 1, LONG_MAX + 1])
def test_long_beyond_64_bits_is_refused(value: int) -> None:
    with pytest.raises(InvalidWatermarkError, match=rf"'w' .* must be a signed 64-bit integer, not {value}\."):
        new_builder("w").type_long().build().new_watermark(value)


@pytest.mark.parametrize("value", [True, 1.0, "5", None])
def test_long_must_be_an_int(value: Any) -> None:
    with pytest.raises(InvalidWatermarkError, match=r"type_long\(\): value must be a signed 64-bit integer"):
        new_builder("w").type_long().build().new_watermark(value)


@pytest.mark.parametrize("value", [0, 1, "True", None])
def test_bool_must_be_true_or_false(value: Any) -> None:
    with pytest.raises(InvalidWatermarkError, match=r"declared with type_bool\(\): value must be True or False, not "):
        new_builder("w").type_bool().build().new_watermark(value)


DECLARED = new_builder("w").type_bool().build()


class Flags(OneInputStreamProcessFunction[int, int]):
    """Emits the watermark that ``make`` returns for a record."""

    def __init__(self, make: Callable[[Any], Watermark]) -> None:
        self.make = make

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [DECLARED]

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        ctx.non_partitioned_context.watermark_manager.emit_watermark(self.make(record))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(DECLARED.new_watermark, id="made by the declaration"),
        pytest.param(lambda record: BoolWatermark(record, "w"), id="made by the class"),
    ],
)
def test_wrong_value_in_callback_names_operator(make: Callable[[Any], Watermark]) -> None:
    env = ExecutionEnvironment.get_instance("local")
    env.from_collection([1]).process(Flags(make)).with_uid("flags").to_sink(CollectSink())
    with pytest.raises(UserFunctionError, match=r"InvalidWatermarkError: Watermark 'w' .*\n *operator: .*'flags'"):
        env.execute()


@pytest.mark.parametrize(
    "call",
    [
        lambda builder: builder.combine_wait_for_all_channels("no"),
        lambda builder: builder.combine_across_inputs(1),
        lambda builder: builder.aligned(None),
        lambda builder: builder.default_handling_strategy("drop"),
    ],
)
def test_invalid_builder_arguments(call: Callable[[Any], object]) -> None:
    with pytest.raises(WatermarkDeclarationError, match="must be"):
        call(new_builder("w").type_long())


@pytest.mark.parametrize("function", [AND, "min"])
def test_combination_of_another_type(function: Any) -> None:
    expected = r"Watermark 'w': values of type_long\(\) cannot be combined with (and|min)\. Choose one of: min, max, "
    with pytest.raises(WatermarkDeclarationError, match=expected):
        LongWatermarkDeclaration("w", WatermarkCombinationPolicy(function), FORWARD)


def test_strategy_of_another_type() -> None:
    strategy: Any = "forward"
    with pytest.raises(WatermarkDeclarationError, match="'w': a LongWatermarkDeclaration requires a WatermarkHandlin"):
        LongWatermarkDeclaration("w", WatermarkCombinationPolicy(MIN), strategy)


def test_builder_has_flinks_name() -> None:
    assert WatermarkDeclarations.new_builder("w").type_bool().build() == new_builder("w").type_bool().build()
