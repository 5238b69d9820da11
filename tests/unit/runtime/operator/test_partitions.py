"""Keys at an operator: the current key, all keys, and records that must keep their key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dsv2.errors import UserFunctionError
from dsv2.sinks import CollectSink
from dsv2.watermark import WatermarkHandlingResult, new_builder
from tests.support import (
    ENDED,
    Driver,
    Signal,
    broadcast_side,
    driven,
    local_environment,
    one_input,
    pass_on,
    two_inputs,
    two_output,
    watermark,
)

W = new_builder("w").type_long().build()
PEEK = WatermarkHandlingResult.PEEK
NO_KEY_HERE = (
    "There is no current key here (open, watermarks, broadcast records and end of input concern all partitions). Use "
    "ctx.apply_to_all_partitions."
)
NO_KEY_AT_ALL = "The key is only defined for functions on a keyed stream. Call key_by before process."


def mod10(number: int) -> int:
    return number % 10


def emit_key(output: Any, ctx: Any) -> None:
    """Emit the current key, for ``apply_to_all_partitions``."""
    output.collect(ctx.state_manager.current_key)


def keyed(*output_key: Callable[[Any], Any], **callbacks: Callable[..., Any]) -> Driver:
    """A function keyed by ``mod10``. By default it forwards its input."""
    function = one_input(**{"process_record": pass_on, **callbacks})
    return driven(lambda numbers: numbers.key_by(mod10).process(function, *output_key).with_uid("f"))


def refused(action: Callable[[], object]) -> tuple[str, str, str]:
    """Callback, type and beginning of the message of the failure."""
    with pytest.raises(UserFunctionError) as caught:
        action()
    return caught.value.callback, caught.value.cause_type, caught.value.cause_message


class TestCurrentKey:
    def test_is_separate_for_each_function_of_a_chain(self) -> None:
        """The second function runs between two lines of the first."""

        def process(record: Any, output: Any, ctx: Any) -> None:
            before = ctx.state_manager.current_key
            output.collect(before)
            assert ctx.state_manager.current_key == before

        function = one_input(process_record=process)
        driver = driven(
            lambda numbers: (
                numbers.key_by(mod10)
                .process(function, lambda key: key)
                .with_uid("f")
                .process(function, lambda key: key)
            )
        )
        driver.send(13, 24)
        assert driver.sent_to("out") == [3, 4]

    @pytest.mark.parametrize(("callback", "signal"), [("on_watermark", watermark(1)), ("end_input", ENDED)])
    @pytest.mark.parametrize("place", ["head", "chained", "two outputs"])
    def test_is_undefined_outside_of_records(self, place: str, callback: str, signal: Signal) -> None:
        """Not even the last key, for a function that kept its context."""
        contexts: list[Any] = []
        function = (two_output if place == "two outputs" else one_input)(
            declare_watermarks=lambda: [W],
            process_record=lambda *args: contexts.append(args[-1]),
            **{callback: lambda *args: contexts[0].state_manager.current_key},
        )

        def build(numbers: Any) -> Any:
            keyed = numbers.key_by(mod10)
            if place == "chained":
                keyed = keyed.process(one_input(process_record=pass_on), mod10).with_uid("head")
            stream = keyed.process(function).with_uid("f")
            return stream.first if place == "two outputs" else stream

        driver = driven(build, "head" if place == "chained" else "f")
        driver.send(13)
        where, kind, message = refused(lambda: driver.send(signal))
        assert (where, kind) == (callback, "ContractError")
        assert message.startswith(NO_KEY_HERE)

    @pytest.mark.parametrize("stream", ["non-keyed", "global", "broadcast"])
    def test_is_undefined_without_key_by(self, stream: str) -> None:
        one = one_input(process_record=lambda record, output, ctx: emit_key(output, ctx))
        side = broadcast_side(process_record_from_broadcast_input=lambda r, ctx: ctx.apply_to_all_partitions(emit_key))
        build: dict[str, Callable[[Any], Any]] = {
            "non-keyed": lambda numbers: numbers.process(one),
            "global": lambda numbers: numbers.global_().process(one),
            "broadcast": lambda numbers: numbers.connect_and_process(numbers.broadcast(), side),
        }
        driver = driven(lambda numbers: build[stream](numbers).with_uid("f"))
        _, kind, message = refused(lambda: driver.send(1, channel=int(stream == "broadcast")))
        assert (kind, message) == ("ContractError", NO_KEY_AT_ALL)


class TestEntry:
    """The entry that extensions keep for a key."""

    @staticmethod
    def count(record: Any, output: Any, ctx: Any) -> None:
        entry = ctx.state_manager.entry()
        entry["count"] = entry.get("count", 0) + 1
        output.collect((ctx.state_manager.current_key, entry["count"]))

    def test_belongs_to_the_current_key(self) -> None:
        driver = keyed(process_record=self.count)
        driver.send(13, 24, 3)
        driver.restart()
        driver.send(33, 14)
        assert driver.sent_to("out") == [(3, 1), (4, 1), (3, 2), (3, 3), (4, 2)]

    def test_requires_a_current_key(self) -> None:
        contexts: list[Any] = []
        driver = keyed(
            process_record=lambda record, output, ctx: contexts.append(ctx),
            end_input=lambda ctx: contexts[0].state_manager.entry(),
        )
        driver.send(13)
        assert refused(lambda: driver.send(ENDED))[1] == "ContractError"
        unkeyed = driven(lambda numbers: numbers.process(one_input(process_record=self.count)).with_uid("f"))
        assert refused(lambda: unkeyed.send(13))[2] == NO_KEY_AT_ALL


class TestTypedKey:
    def test_is_the_current_key(self) -> None:
        driver = keyed(process_record=lambda record, output, ctx: output.collect(ctx.state_manager.key_as(int)))
        driver.send(13, 24)
        assert driver.sent_to("out") == [3, 4]

    def test_is_refused_for_another_class(self) -> None:
        driver = keyed(process_record=lambda record, output, ctx: ctx.state_manager.key_as(tuple[int, str]))
        failure = refused(lambda: driver.send(13))
        assert failure[1:] == ("ContractError", "The current key is 3 (int), not tuple[int, str].")


class TestAllPartitions:
    def test_current_key_is_restored_afterwards(self) -> None:
        def process(record: Any, output: Any, ctx: Any) -> None:
            inner: list[Any] = []

            def visit(output: Any, ctx: Any) -> None:
                inner.append(ctx.state_manager.current_key)
                if len(inner) == 1:
                    ctx.non_partitioned_context.apply_to_all_partitions(visit)
                    assert ctx.state_manager.current_key == inner[0]

            ctx.non_partitioned_context.apply_to_all_partitions(visit)
            output.collect((ctx.state_manager.current_key, len(inner)))

        driver = keyed(process_record=process)
        driver.send(1, 2, 3)
        assert driver.sent_to("out") == [(1, 2), (2, 4), (3, 6)]

    def test_caught_exception_leaves_the_right_key(self) -> None:
        def process(record: Any, output: Any, ctx: Any) -> None:
            with pytest.raises(ZeroDivisionError):
                ctx.non_partitioned_context.apply_to_all_partitions(lambda output, ctx: output.collect(1 / 0))
            emit_key(output, ctx)

        driver = keyed(process_record=process)
        driver.send(1, 2, 1)
        assert driver.sent_to("out") == [1, 2, 1]

    def test_two_outputs(self) -> None:
        env = local_environment()
        function = two_output(
            end_input=lambda ctx: ctx.apply_to_all_partitions(
                lambda first, second, ctx: (
                    first.collect(ctx.state_manager.current_key),
                    second.collect(2 * ctx.state_manager.current_key),
                )
            )
        )
        pair = env.from_collection([1]).key_by(mod10).process(function).with_uid("f")
        pair.first.to_sink(CollectSink()).with_uid("first")
        pair.second.to_sink(CollectSink()).with_uid("second")
        driver = Driver(env.build_plan(), "f").open()
        driver.send(1, 2, 3, ENDED)
        assert sorted(driver.sent_to("first")[:-1]) == [1, 2, 3]
        assert sorted(driver.sent_to("second")[:-1]) == [2, 4, 6]


class TestKeptKeys:
    """A stream that stays keyed: the records that a function emits must have the current key."""

    def test_records_of_another_key_are_refused(self) -> None:
        """KeyedProcessOperatorTest.testCheckKey."""
        driver = keyed(lambda record: -1)
        where, kind, message = refused(lambda: driver.send(1))
        assert (where, kind) == ("process_record", "InvalidKeyError")
        assert message == (
            "The output key must equal the input key when the stream stays keyed: record 1 has the key -1, but the "
            "current key is 1."
        )

    @pytest.mark.parametrize("bad_output", ["first", "second"])
    def test_either_output_is_checked(self, bad_output: str) -> None:
        """KeyedTwoOutputProcessOperatorTest.testKeyCheck."""

        def process(record: Any, first: Any, second: Any, ctx: Any) -> None:
            first.collect(-1 if bad_output == "first" else record)
            second.collect(-1 if bad_output == "second" else record)

        def build(numbers: Any) -> Any:
            keyed = numbers.key_by(mod10)
            pair = keyed.process(two_output(process_record=process), first_key_selector=int, second_key_selector=int)
            pair.with_uid("f")
            pair.second.to_sink(CollectSink())
            return pair.first

        driver = driven(build)
        assert refused(lambda: driver.send(1))[1] == "InvalidKeyError"
        assert driver.frames == [] or bad_output == "second"

    @pytest.mark.parametrize("channel", [0, 1])
    def test_records_of_either_input_are_checked(self, channel: int) -> None:
        """KeyedTwoInputNonBroadcastProcessOperatorTest.testCheckKey."""
        function = two_inputs(process_record_from_first_input=pass_on, process_record_from_second_input=pass_on)
        driver = driven(
            lambda numbers: (
                numbers.key_by(mod10)
                .connect_and_process(numbers.key_by(mod10), function, lambda record: record)
                .with_uid("f")
            )
        )
        driver.send(1, channel=channel)
        assert refused(lambda: driver.send(11, channel=channel))[1] == "InvalidKeyError"

    def test_records_of_the_non_broadcast_input_are_checked(self) -> None:
        """KeyedTwoInputBroadcastProcessOperatorTest.testCheckKey."""
        function = broadcast_side(process_record_from_non_broadcast_input=pass_on)
        driver = driven(
            lambda numbers: (
                numbers.key_by(mod10)
                .connect_and_process(numbers.broadcast(), function, lambda record: record)
                .with_uid("f")
            )
        )
        driver.send(1)
        assert refused(lambda: driver.send(11))[1] == "InvalidKeyError"

    def test_each_partition_is_checked_with_its_own_key(self) -> None:
        def on_watermark(signal: Any, output: Any, ctx: Any) -> Any:
            ctx.apply_to_all_partitions(
                lambda output, ctx: output.collect(ctx.state_manager.current_key + signal.value)
            )
            return WatermarkHandlingResult.POLL

        driver = keyed(
            mod10,
            process_record=lambda record, output, ctx: None,
            on_watermark=on_watermark,
            declare_watermarks=lambda: [W],
        )
        driver.send(1, 2, watermark(10))
        assert sorted(driver.sent_to("out")) == [11, 12]
        where, kind, _ = refused(lambda: driver.send(watermark(5)))
        assert (where, kind) == ("on_watermark", "InvalidKeyError")

    @pytest.mark.parametrize("stays_keyed", [False, True])
    def test_on_watermark_has_no_key_to_check_against(self, stays_keyed: bool) -> None:
        def on_watermark(signal: Any, output: Any, ctx: Any) -> Any:
            output.collect(signal.value)
            return PEEK

        driver = keyed(
            *([mod10] if stays_keyed else []),
            declare_watermarks=lambda: [W],
            on_watermark=on_watermark,
        )
        driver.send(1)
        if not stays_keyed:
            driver.send(watermark(5))
            assert driver.sent_to("out") == [1, 5, watermark(5)]
            return
        where, kind, message = refused(lambda: driver.send(watermark(5)))
        assert (where, kind) == ("on_watermark", "ContractError")
        assert message.startswith(NO_KEY_HERE)
