"""Watermarks at an operator: its callbacks, forwarding, and emitting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.errors import UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import CollectSink
from dsv2.watermark import BoolWatermark, LongWatermark, WatermarkDeclaration, WatermarkHandlingResult, new_builder
from tests.support import (
    Driver,
    Signal,
    driven,
    local_environment,
    one_input,
    two_inputs,
    watermark,
)

PEEK, POLL = WatermarkHandlingResult.PEEK, WatermarkHandlingResult.POLL
LONG = new_builder("w").type_long()
MIN = LONG.combine_function_min().build()


def shows(declaration: WatermarkDeclaration = MIN, answer: Any = PEEK) -> OneInputStreamProcessFunction[Any, Any]:
    """Emits its records, and the watermarks that it receives."""

    def on_watermark(signal: Any, output: Any, ctx: Any) -> Any:
        output.collect(signal)
        return answer

    return one_input(
        declare_watermarks=lambda: [declaration],
        process_record=lambda record, output, ctx: output.collect(record),
        on_watermark=on_watermark,
    )


def emitting(declaration: WatermarkDeclaration = MIN, **callbacks: Any) -> OneInputStreamProcessFunction[Any, Any]:
    """Forwards records, and emits those that are watermarks."""

    def process(record: Any, output: Any, ctx: Any) -> None:
        if isinstance(record, LongWatermark | BoolWatermark):
            ctx.non_partitioned_context.watermark_manager.emit_watermark(record)
        else:
            output.collect(record)

    return one_input(declare_watermarks=lambda: [declaration], process_record=process, **callbacks)


def test_watermark_is_shown_after_its_records_are_sent() -> None:
    driver = driven(lambda numbers: numbers.process(shows()).with_uid("f"))
    driver.send("a", watermark(5), "b", watermark(7))
    assert driver.sent_to("out") == [
        *("a", LongWatermark(5, "w"), watermark(5)),
        *("b", LongWatermark(7, "w"), watermark(7)),
    ]


@pytest.mark.parametrize("answer", [None, True, "PEEK"])
def test_on_watermark_must_return_a_result(answer: Any) -> None:
    """In Flink a callback that returns null holds the watermark back. In Python a missing return is an easy mistake."""
    driver = driven(lambda numbers: numbers.process(shows(answer=answer)).with_uid("f"))
    with pytest.raises(UserFunctionError) as failed:
        driver.send(watermark(5))
    assert (failed.value.callback, failed.value.cause_type) == ("on_watermark", "ContractError")
    assert failed.value.cause_message == (
        f"on_watermark returned {answer!r}. Return WatermarkHandlingResult.PEEK to forward the watermark as "
        f"declared, or POLL to hold it back."
    )


def test_watermarks_of_other_declarations_are_shown() -> None:
    flag = new_builder("flag").type_bool().build()

    def build(numbers: Any) -> Any:
        numbers.process(one_input(declare_watermarks=lambda: [flag])).to_sink(CollectSink())
        return numbers.process(shows()).with_uid("f")

    driver = driven(build)
    driver.send(watermark(True, "flag"), watermark(1))
    assert driver.sent_to("out") == [
        *(BoolWatermark(True, "flag"), watermark(True, "flag")),
        *(LongWatermark(1, "w"), watermark(1)),
    ]


def test_progress_has_the_last_delivered_watermark() -> None:
    driver = driven(lambda numbers: numbers.process(shows()).with_uid("f"), channels=2)
    driver.send(watermark(7), channel=0)
    driver.send(watermark(5), watermark(6), channel=1)
    assert driver.progress("f").watermarks == {"w": 6}
    driver.restart()
    assert driver.progress("f").watermarks == {"w": 6}


# --- WatermarkITCase: two subtasks upstream, the second one sends its watermark after the first ----------------------

WAIT = LONG.combine_function_max().combine_wait_for_all_channels(True).build()
ALIGNED = new_builder("w").type_bool().combine_wait_for_all_channels(True).aligned().build()
MAX = LONG.combine_function_max().combine_wait_for_all_channels(False).build()
AND = new_builder("w").type_bool().combine_function_and().build()
OR = new_builder("w").type_bool().combine_function_or().build()


# --- Two inputs ------------------------------------------------------------------------------------------------------


def joined(declaration: WatermarkDeclaration, answer: Callable[[Any], Any] = lambda signal: PEEK) -> Driver:
    """Two inputs with one channel each: 0 and 1."""

    def showing(place: str) -> Any:
        return lambda signal, output, ctx: (output.collect((place, signal.value)), answer(signal))[1]

    function = two_inputs(
        declare_watermarks=lambda: [declaration],
        on_watermark_from_first_input=showing("first"),
        on_watermark_from_second_input=showing("second"),
    )
    return driven(lambda numbers: numbers.connect_and_process(numbers, function).with_uid("f"))


def forwarded_by(driver: Driver) -> list[Any]:
    return [element for element in driver.sent_to("out") if isinstance(element, Signal)]


def send_both(driver: Driver, *turns: tuple[int, Any]) -> None:
    for channel, element in turns:
        driver.send(element, channel=channel)


TURNS = [(0, watermark(5)), (1, watermark(1)), (0, watermark(6)), (1, watermark(2))]
ACROSS = LONG.combine_function_min().combine_across_inputs(True)
ACROSS_NO_WAIT = ACROSS.combine_wait_for_all_channels(False).build()
ACROSS_WAIT = ACROSS.combine_wait_for_all_channels(True).build()


@pytest.mark.parametrize(("declaration", "expected"), [(ACROSS_NO_WAIT, [5, 1, 2]), (ACROSS_WAIT, [1, 2])])
def test_inputs_may_be_combined(declaration: WatermarkDeclaration, expected: list[int]) -> None:
    driver = joined(declaration)
    send_both(driver, *TURNS)
    assert forwarded_by(driver) == list(map(watermark, expected))
    shown = [element for element in driver.sent_to("out") if not isinstance(element, Signal)]
    assert shown == [("first", 5), ("second", 1), ("first", 6), ("second", 2)]


def test_held_back_watermarks_are_not_combined() -> None:
    driver = joined(ACROSS_NO_WAIT, lambda signal: POLL if signal.value == 1 else PEEK)
    send_both(driver, *TURNS)
    assert forwarded_by(driver) == [watermark(5), watermark(6), watermark(2)]


# --- Chained or not --------------------------------------------------------------------------------------------------


def seen_at_the_end(elements: list[Any], declaration: WatermarkDeclaration, chained: bool) -> list[Any]:
    """Output of three functions in a row at a sink."""
    env, sink = local_environment(), CollectSink[Any]()
    stream: Any = env.from_collection(elements).process(emitting(declaration))
    for _ in range(2):
        stream = (stream if chained else stream.shuffle()).process(shows(declaration))
    stream.to_sink(sink)
    env.execute()
    return sink.results


def test_repeated_value_is_shown_once_on_chained_edges() -> None:
    """In Flink only without chaining: 5, 5, 7, 3 if chained."""
    values = [MIN.new_watermark(value) for value in (5, 5, 7, 3)]
    driver = driven(lambda numbers: numbers.process(emitting()).with_uid("f").process(shows()))
    driver.send(*values)
    assert forwarded_by(driver) == list(map(watermark, (5, 7, 3)))


@given(
    st.sampled_from([MIN, MAX, WAIT, ALIGNED, AND, OR]),
    st.lists(st.sampled_from(["record", 0, 1, 2, 3]), max_size=15),
)
def test_chaining_changes_nothing(declaration: Any, elements: list[Any]) -> None:
    kind = bool if declaration in (ALIGNED, AND, OR) else int
    sequence = [declaration.new_watermark(kind(e)) if isinstance(e, int) else e for e in elements]
    assert seen_at_the_end(sequence, declaration, True) == seen_at_the_end(sequence, declaration, False)


# --- Emitting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("emitted", "cause", "message"),
    [
        (
            LongWatermark(1, "v"),
            "UndeclaredWatermarkError",
            "Watermark 'v' is not declared by any function or source of the job (declared: 'w'). Return its "
            "declaration from declare_watermarks().",
        ),
        (
            7,
            "UndeclaredWatermarkError",
            "emit_watermark requires a watermark from declaration.new_watermark(value), got 7.",
        ),
        (
            BoolWatermark(True, "w"),
            "ContractError",
            "Watermark 'w' must be a LongWatermark as declared, got BoolWatermark(value=True, identifier='w').",
        ),
    ],
    ids=["undeclared", "not a watermark", "another type"],
)
def test_invalid_watermarks_are_refused(emitted: Any, cause: str, message: str) -> None:
    function = one_input(
        declare_watermarks=lambda: [MIN],
        process_record=lambda record, output, ctx: ctx.non_partitioned_context.watermark_manager.emit_watermark(record),
    )
    driver = driven(lambda numbers: numbers.process(function).with_uid("f"))
    with pytest.raises(UserFunctionError) as caught:
        driver.send(emitted)
    assert (caught.value.cause_type, caught.value.cause_message) == (cause, message)
