"""Watermark values of every type: what is valid, what is converted, and how values travel, are kept and are shown."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from dsv2 import JobError
from dsv2.errors import InvalidWatermarkError, WatermarkDeclarationError
from dsv2.runtime.exchange.control_log import pack_controls, unpack_controls
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.watermark import (
    GeneralCombinationFunction,
    LongWatermarkBuilder,
    NumericWatermarkCombinationFunction,
    Quantile,
    VectorClock,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingStrategy,
    new_builder,
)
from dsv2.watermark.combiner import new_combiner
from dsv2.watermark.value_text import shown_value


@dataclass(frozen=True)
class Model:
    name: str
    version: int


class Limit(NamedTuple):
    rate: float


@dataclass(frozen=True)
class Listed:
    items: list[int]


@dataclass
class Changeable:
    name: str


FLOAT = new_builder("f").type_float().build()
STR = new_builder("s").type_str().build()
MODEL = new_builder("m").type_of(Model).build()
LIMIT = new_builder("n").type_of(Limit).build()
VECTOR = new_builder("v").type_vector().build()
TAGS = new_builder("t").type_set(str).build()
MODELS = new_builder("ms").type_set(Model).build()
ALL: list[tuple[WatermarkDeclaration, Any]] = [
    (FLOAT, 1.5), (STR, "a"), (MODEL, Model("a", 1)), (LIMIT, Limit(2.0)), (VECTOR, {"p0": 3, "p1": 5}),
    (TAGS, {"b", "a"}), (MODELS, {Model("a", 1), Model("b", 2)}),
]  # fmt: skip


@pytest.mark.parametrize(("declaration", "value"), ALL)
def test_values_are_kept(declaration: WatermarkDeclaration, value: Any) -> None:
    watermark = declaration.new_watermark(value)
    assert watermark == Watermark(watermark.value, declaration.identifier)
    assert watermark.value == value
    assert hash(watermark) == hash(declaration.new_watermark(value))
    assert declaration.matches(watermark)
    assert not STR.matches(FLOAT.new_watermark(1.0))


def test_what_is_passed_is_converted_to_something_immutable() -> None:
    entries, tags = {"p": 1}, {"a"}
    vector, labels = VECTOR.new_watermark(entries), TAGS.new_watermark(tags)
    entries["p"] = 2
    tags.add("b")
    assert vector.value == {"p": 1}
    assert labels.value == {"a"}
    assert repr(FLOAT.new_watermark(3).value) == "3.0"


@pytest.mark.parametrize(
    ("declaration", "value", "requirement"),
    [
        (FLOAT, math.nan, "a finite number"), (FLOAT, math.inf, "a finite number"), (FLOAT, 10**400, "a finite number"),
        (FLOAT, True, "a finite number"), (FLOAT, "1", "a finite number"), (STR, 1, "a str"),
        (MODEL, ("a", 1), "an instance of Model that is hashable"),
        (new_builder("l").type_of(Listed).build(), Listed([1]), "an instance of Listed that is hashable"),
        (VECTOR, {"p": 1.0}, "a mapping of strings to signed 64-bit integers"),
        (VECTOR, {1: 1}, "a mapping of strings"),
        (VECTOR, {"p": 2**63}, "a mapping of strings"),
        (VECTOR, [("p", 1)], "a mapping of strings"),
        (TAGS, {1}, "a set of str"), (TAGS, ["a"], "a set of str"),
        (new_builder("fs").type_set(float).build(), {1.0, math.nan}, "a set of float"),
    ],
)  # fmt: skip
def test_invalid_values(declaration: WatermarkDeclaration, value: Any, requirement: str) -> None:
    expected = f"Watermark {declaration.identifier!r} was declared with {declaration.value_type.builder_call}: value "
    with pytest.raises(InvalidWatermarkError) as failed:
        declaration.new_watermark(value)
    assert str(failed.value).startswith(f"{expected}must be {requirement}")


@pytest.mark.parametrize("kind", [Changeable, int, dict, "Model", object])
def test_types_whose_values_may_change_are_refused(kind: Any) -> None:
    with pytest.raises(WatermarkDeclarationError, match="type_of requires a frozen dataclass"):
        new_builder("w").type_of(kind)
    if kind is not int:
        with pytest.raises(WatermarkDeclarationError, match="type_set requires str, int, bool, float, bytes, a frozen"):
            new_builder("w").type_set(kind)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda b: b.type_of(Model).combine_function_min(), r"values of type_of\(Model\) cannot be combined with min"),
        (lambda b: b.type_long().combine_across_inputs(True, GeneralCombinationFunction.UNION),
         r"values of type_long\(\) cannot be combined with union"),
        (lambda b: b.type_long().combine_function_sum().default_handling_strategy_forward(),
         "cannot be forwarded, because it is combined with sum: every receiver would send its result on"),
        (lambda b: b.type_bool().combine_function_at_least(2).default_handling_strategy("forward"),
         r"cannot be forwarded, because it is combined with at_least\(2\)"),
        (lambda b: b.type_str().combine_wait_for_all_channels(True),
         "the last value is delivered when it arrives, so it cannot wait"),
        (lambda b: b.type_bool().combine_function_at_least(2).combine_wait_for_all_channels(True).aligned(),
         "an aligned watermark has a value of every channel"),
        (lambda b: b.type_long().combine_wait_for_all_channels(True).aligned().deliver_on_arrival(),
         "delivered once in each round, not on every arrival"),
    ],
)  # fmt: skip
def test_contradictory_settings(build: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(WatermarkDeclarationError, match=f"^Watermark 'w'.*{message}"):
        build(new_builder("w")).build()


@pytest.mark.parametrize(
    "call",
    [
        lambda: new_builder("w").type_long().combine_function_quantile(1.5),
        lambda: new_builder("w").type_long().combine_function_at_least(0),
        lambda: new_builder("w").type_long().combine_function_at_least(True),
        lambda: new_builder("w").type_long().deliver_when(5),  # type: ignore[arg-type]
        lambda: new_builder("w").type_long().combine_across_inputs(False, NumericWatermarkCombinationFunction.MAX),
    ],
)
def test_invalid_arguments_of_builders(call: Callable[[], Any]) -> None:
    with pytest.raises(WatermarkDeclarationError):
        call()


def test_sums_are_not_forwarded_unless_it_makes_no_difference() -> None:
    builder = new_builder("w").type_long()
    assert builder.combine_function_sum().build().default_handling_strategy is WatermarkHandlingStrategy.IGNORE
    assert builder.combine_function_max().build().default_handling_strategy is WatermarkHandlingStrategy.FORWARD
    longest = (
        new_builder("w").type_str().combine(lambda a, b: max(a, b, key=lambda text: (len(text), text)), samples="ab")
    )
    assert longest.build().default_handling_strategy is WatermarkHandlingStrategy.FORWARD
    product = new_builder("w").type_long().combine(lambda a, b: a * b, samples=[1, 2, 3], neutral=1)
    assert product.build().default_handling_strategy is WatermarkHandlingStrategy.IGNORE


_COUNTER: Iterator[int] = iter(range(1000))


@pytest.mark.parametrize(
    ("function", "settings", "message"),
    [
        (lambda a, b: a - b, {"samples": [1, 2]}, "is not commutative: it returns -1 for 1 and 2, it returns 1 for 2"),
        (lambda a, b: (a + b) // 2, {"samples": [0, 1, 4]}, "is not associative: for 0, 0 and 4 it returns 2 or 1"),
        (lambda a, b: a + b, {"samples": [1], "idempotent": True}, "is not idempotent, although it is declared so"),
        (lambda a, b: a + b, {"samples": [1], "neutral": 1}, "has another neutral value than 1"),
        (lambda a, b: str(a + b), {"samples": [1]}, "The result '2' is not a signed 64-bit integer"),
        (lambda a, b: a / 0, {"samples": [1]}, "fails for 1 and 1 with ZeroDivisionError"),
        (lambda a, b: a + b, {"samples": ["1"]}, "The sample '1' is not a signed 64-bit integer"),
        (lambda a, b: next(_COUNTER), {"samples": [1]}, "is not pure"),
        (max, {}, "needs samples="),
        (5, {"samples": [1]}, "requires a function of two values"),
    ],
)
def test_laws_of_functions_are_checked(function: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(WatermarkDeclarationError) as failed:
        new_builder("w").type_long().combine(function, **settings)
    assert message in str(failed.value)
    assert str(failed.value).startswith("Watermark 'w': combine(")


def test_function_that_breaks_its_promises_names_the_watermark() -> None:
    fails = new_builder("w").type_long().combine(lambda a, b: [][1], idempotent=True).build()
    other = new_builder("w").type_long().combine(lambda a, b: "x", idempotent=True).build()  # type: ignore[return-value,arg-type]
    when = new_builder("w").type_long().deliver_when(lambda new, old: new > old).build()  # type: ignore[operator]
    for declaration, message in ((fails, "failed. IndexError"), (other, "returned 'x'. It must return a signed")):
        combiner = new_combiner(declaration, 2)
        combiner.update(0, 1)
        with pytest.raises(JobError, match=f"^Watermark 'w': combine.* of 1 and 2 {message}"):
            combiner.update(1, 2)
    with pytest.raises(JobError, match=r"^Watermark 'w': when .* failed for 1, after None was delivered. TypeError"):
        new_combiner(when, 1).update(0, 1)


def test_every_part_of_a_declaration_counts() -> None:
    def high(new: int, old: int | None) -> bool:
        return new > 9

    def start() -> LongWatermarkBuilder:
        return new_builder("w").type_long()

    different = [
        start().build(),
        new_builder("w").type_float().build(),
        start().combine_function_quantile(0.5).build(),
        start().combine_function_quantile(0.25).build(),
        start().deliver_on_arrival().build(),
        start().deliver_when(high).build(),
        start().combine_across_inputs(True).build(),
        start().combine_across_inputs(True, Quantile(0.5)).build(),
        new_builder("w").type_set(str).build(),
        new_builder("w").type_set(int).build(),
        new_builder("w").type_of(Model).build(),
        new_builder("w").type_of(Limit).build(),
    ]
    assert len(set(different)) == len(different)
    assert start().deliver_when(high).build() == start().deliver_when(high).build()


CODEC = Codec(TypeRegistry([Model, Limit], [__name__]))


def test_control_elements_carry_every_value() -> None:
    values = [(declaration, declaration.new_watermark(value).value) for declaration, value in ALL]
    controls = [(number, 0, declaration.identifier, value) for number, (declaration, value) in enumerate(values)]
    controls += [(9, 0, "long", 2**63 - 1), (9, 1, "", True), (9, 2, "", 0)]
    column = CODEC.loads_columns(CODEC.dumps_columns([pack_controls(controls)]), "A frame")[0]
    found = unpack_controls(column, "A frame")
    assert found == controls
    assert [type(control[3]) for control in found] == [type(control[3]) for control in controls]


@pytest.mark.parametrize(
    ("declaration", "greatest"),
    [
        (new_builder("l").type_long().combine_function_sum().build(), 2**63 - 1),
        (new_builder("f").type_float().combine_function_sum().build(), 1.7e308),
    ],
)
def test_sum_that_is_no_value_fails(declaration: WatermarkDeclaration, greatest: Any) -> None:
    combiner = new_combiner(declaration, 2)
    assert combiner.update(0, greatest) == greatest
    with pytest.raises(JobError, match=f"Watermark '{declaration.identifier}': the sum of the channels is not a "):
        combiner.update(1, greatest)


@pytest.mark.parametrize(("declaration", "value"), ALL)
def test_declarations_and_watermarks_are_data(declaration: WatermarkDeclaration, value: Any) -> None:
    both = (declaration, declaration.new_watermark(value))
    assert CODEC.loads(CODEC.dumps(both), "A field") == both
    assert pickle.loads(pickle.dumps(both)) == both  # noqa: S301


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (5, 5),
        (True, True),
        (1.5, 1.5),
        ("text", "text"),
        (frozenset("hgfedcba"), "{a, b, c, d, e, f, g, h}"),
        (VectorClock({"p": 1, "a": 2}), "{a: 2, p: 1}"),
        (Model("a", 1), "Model(name='a', version=1)"),
        ("x" * 300, "x" * 200 + "..."),
    ],
)
def test_shown_values(value: object, shown: object) -> None:
    assert shown_value(value) == shown


def test_vector_clocks_are_mappings_with_a_partial_order() -> None:
    low, high, other = VectorClock({"b": 1, "a": 2}), VectorClock({"a": 2, "b": 3}), VectorClock({"c": 0})
    assert low["b"] == 1
    assert list(low) == ["a", "b"]
    assert len(low) == 2
    assert low == {"a": 2, "b": 1}
    assert low <= high
    assert low < high
    assert high > low
    assert high >= low
    assert not low <= other
    assert not other <= low
    assert "z" not in low
    assert not low.keys() & {1}
    assert hash(low) == hash(VectorClock({"a": 2, "b": 1}))
    assert repr(low) == "VectorClock({'a': 2, 'b': 1})"
    with pytest.raises(KeyError):
        low["z"]
