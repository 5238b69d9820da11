"""Side outputs: mistakes, and what depends on the tags of a function."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from dsv2 import ExecutionEnvironment, OutputTag
from dsv2.checkpoint.description import describe
from dsv2.checkpoint.differences import differences
from dsv2.errors import (
    ConfigurationError,
    ContractError,
    PlanError,
    SchemaError,
    UndeclaredOutputError,
    UnreadStreamWarning,
    UserFunctionError,
)
from dsv2.extension.join import JoinFunction, JoinMode, join
from dsv2.extension.window import (
    TwoInputNonBroadcastWindowStreamProcessFunction,
    WindowStrategy,
)
from dsv2.extension.window.process_functions import windowed
from dsv2.functions import CallableFunction, OneInputStreamProcessFunction, no_output_until_end_of_input
from dsv2.graph.record_types import UNDECLARED, declared_type
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.sinks import CollectSink, FileSink
from dsv2.testing import OneInputHarness, TwoInputNonBroadcastHarness
from runtime_spark.sink.sinks import check_sink
from tests.durations import ms

ODD = OutputTag("odd", int)
TEXT = OutputTag[int | str]("text")


class Row(NamedTuple):
    number: int


class Other(NamedTuple):
    text: str


ROWS = OutputTag("rows", Row)


class Declares(OneInputStreamProcessFunction[int, int]):
    """Emits odd numbers to the side. A test chooses the tags that it declares."""

    def __init__(self, *tags: Any, emits: Any = ODD) -> None:
        self.tags = tags
        self.emits = emits

    def declare_outputs(self) -> Any:
        return self.tags

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        if record % 2:
            ctx.output(self.emits, record)
        else:
            output.collect(record)


def stream() -> Any:
    return ExecutionEnvironment.get_instance(runtime="local").from_collection([1, 2, 3])


class TestTags:
    def test_equality_is_that_of_name_and_type(self) -> None:
        assert OutputTag("odd", int) == ODD
        assert len({ODD, OutputTag("odd", int), OutputTag("odd", str), OutputTag("other", int)}) == 3
        assert ODD != "odd"

    @pytest.mark.parametrize("tag", [ODD, TEXT, OutputTag("pairs", tuple[int, str]), ROWS])
    def test_survives_serialization(self, tag: OutputTag[Any]) -> None:
        import cloudpickle

        assert cloudpickle.loads(cloudpickle.dumps(tag)) == tag

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("", int), "must be a non-empty string, not ''"),
            ((int,), "must be a non-empty string, not <class 'int'>"),
            (("odd", 7), "takes the type of the records, such as int or Order, not 7"),
            (("odd", int | str), "For other types write OutputTag.int . str...mixed.."),
        ],
    )
    def test_wrong_arguments_are_refused(self, arguments: Any, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            OutputTag(*arguments)


class TestDeclarations:
    @pytest.mark.parametrize(
        ("tags", "message"),
        [
            (("odd",), "declare_outputs returned 'odd', not a tag"),
            (
                (ODD, OutputTag("odd", str)),
                "two tags with the name 'odd': OutputTag.'odd', int. and OutputTag.'odd', str.",
            ),
        ],
    )
    def test_wrong_tags_are_refused(self, tags: Any, message: str) -> None:
        with pytest.raises(PlanError, match=f"Process at .*test_side_outputs.py:.*: .*{message}"):
            stream().process(Declares(*tags))

    def test_forgotten_return_is_refused(self) -> None:
        class Forgets(Declares):
            def declare_outputs(self) -> Any: ...

        with pytest.raises(PlanError, match="declare_outputs returned None, not a collection of tags"):
            stream().process(Forgets())

    @pytest.mark.parametrize(
        ("read", "message"),
        [
            (
                OutputTag("ood", int),
                r"does not declare the output OutputTag.'ood', int. .declared: OutputTag.'odd', int..",
            ),
            (OutputTag("odd", str), "the output 'odd' is OutputTag.'odd', int., not OutputTag.'odd', str."),
            ("odd", "takes an OutputTag, not str"),
        ],
    )
    def test_reading_another_tag_is_refused(self, read: Any, message: str) -> None:
        with pytest.raises(PlanError, match=f"side_output at .*test_side_outputs.py:.*{message}"):
            stream().process(Declares(ODD)).side_output(read)

    @pytest.mark.parametrize("make", [lambda s: s, lambda s: s.map(str), lambda s: s.filter(bool)])
    def test_sources_and_functions_without_context_have_none(self, make: Callable[[Any], Any]) -> None:
        with pytest.raises(PlanError, match=r"the function does not declare the output .* .declared: none"):
            make(stream()).side_output(ODD)


def _streaming() -> Any:
    from dsv2 import RuntimeExecutionMode

    return RuntimeExecutionMode.STREAMING


class TestEmitting:
    @pytest.mark.parametrize(
        ("emits", "expected", "message"),
        [
            (OutputTag("ood", int), UndeclaredOutputError, r"OutputTag.'ood', int. is not declared by this function"),
            (OutputTag("odd", str), UndeclaredOutputError, r"OutputTag.'odd', str. is not declared"),
            ("odd", ContractError, "output takes an OutputTag and a record, but the tag is 'odd'"),
        ],
    )
    def test_other_tags_are_refused(self, emits: Any, expected: type[Exception], message: str) -> None:
        harness = OneInputHarness(Declares(ODD, emits=emits))
        with pytest.raises(UserFunctionError, match=message) as failed:
            harness.input.push(1)
        assert type(failed.value.cause) is expected

    def test_callable_has_those_that_are_read(self) -> None:
        function = CallableFunction[int, int](lambda record, output, ctx: ctx.output(ODD, record))
        harness = OneInputHarness(function, side_outputs=[ODD])
        harness.input.push(1)
        assert harness.side_output(ODD).records == [1]
        with pytest.raises(UserFunctionError, match=r"declared: none.*if the function is a plain callable"):
            OneInputHarness(function).input.push(1)
        with pytest.raises(ContractError, match=r"has no side output OutputTag.'text'.. It has: OutputTag.'odd', int."):
            harness.side_output(TEXT)

    def test_nothing_before_the_end_applies_to_them(self) -> None:
        @no_output_until_end_of_input
        class AtEnd(Declares): ...

        with pytest.raises(UserFunctionError, match="no_output_until_end_of_input but emitted 1 before"):
            OneInputHarness(AtEnd(ODD)).input.push(1)

    def test_restart_continues(self) -> None:
        harness = OneInputHarness(Declares(ODD))
        harness.input.push(1, 2)
        harness.restart()
        harness.input.push(3, timestamp=7)
        assert harness.output.records == [2]
        assert [*zip(harness.side_output(ODD).records, harness.side_output(ODD).timestamps, strict=True)] == [
            (1, None),
            (3, 7),
        ]

    def test_late_records_of_a_join_of_callables(self) -> None:
        late = OutputTag("late", int)
        function: Any = join(
            lambda left, right, output, ctx: ctx.output(TEXT, f"{left} {right}"),
            JoinMode.interval(ms(-5), ms(5)),
            on_late_left=lambda record, output, ctx: ctx.output(late, record),
        )
        harness: Any = TwoInputNonBroadcastHarness(
            function, first_key=lambda record: 0, second_key=lambda record: 0, side_outputs=[late, TEXT]
        )
        harness.first_input.push(1, timestamp=1)
        harness.second_input.push(2, timestamp=3)
        for one in (harness.first_input, harness.second_input):
            one.push_event_time(10)
        harness.first_input.push(4, timestamp=4)
        assert harness.side_output(TEXT).stamped_records[0].timestamp == 3
        assert harness.side_output(TEXT).records == ["1 2"]
        assert [(one.record, one.timestamp) for one in harness.side_output(late).stamped_records] == [(4, 4)]

    def test_join_functions_declare_them(self) -> None:
        class Pairs(JoinFunction[int, int, int]):
            def declare_outputs(self) -> list[OutputTag[Any]]:
                return [TEXT]

            def process_record(self, left: int, right: int, output: Any, ctx: Any) -> None:
                ctx.output(TEXT, left + right)

        harness = TwoInputNonBroadcastHarness(join(Pairs()), first_key=bool, second_key=bool)
        harness.first_input.push(1)
        harness.second_input.push(2)
        assert harness.side_output(TEXT).records == [3]

    def test_late_records_of_each_input_of_a_window(self) -> None:
        class Both(TwoInputNonBroadcastWindowStreamProcessFunction[int, str, int]):
            def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
                output.collect(len(window.get_all_records1()) + len(window.get_all_records2()))

        numbers, texts = OutputTag("numbers", int), OutputTag("texts", str)
        function = windowed(
            WindowStrategy.tumbling(ms(10)),
            Both(),
            late_tags=(
                numbers,
                texts,
            ),
        )
        harness = TwoInputNonBroadcastHarness(function, first_key=lambda record: 0, second_key=lambda record: 0)
        harness.first_input.push(1, timestamp=1)
        harness.first_input.push_event_time(15)
        harness.second_input.push_event_time(15)
        harness.first_input.push(2, timestamp=2)
        harness.second_input.push("late", timestamp=3)
        assert harness.output.records == [1]
        assert harness.side_output(numbers).records == [2]
        assert harness.side_output(texts).records == ["late"]


class ToRows(OneInputStreamProcessFunction[int, int]):
    def declare_outputs(self) -> list[OutputTag[Any]]:
        return [ROWS, TEXT]

    def process_record(self, record: int, output: Any, ctx: Any) -> None: ...


def warnings_of(build: Callable[[Any], Any]) -> list[str]:
    env = ExecutionEnvironment.get_instance(runtime="local")
    build(env.from_collection([1, 2]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env.execute()
    assert all(issubclass(warning.category, UnreadStreamWarning) for warning in caught)
    return [str(warning.message).replace("'", "") for warning in caught]


class TestPlan:
    def test_unread_output_is_dropped_with_a_warning(self) -> None:
        [said] = warnings_of(lambda s: s.process(Declares(ODD)).with_name("Sort").to_sink(CollectSink()))
        assert said.startswith("[unread-output] Sort (uid ")
        assert said.endswith(
            "emits the side output odd, which nothing reads: its records are lost. "
            "Read side_output(tag) of the result, or do not declare the tag."
        )

    def test_types_are_those_of_the_tags(self) -> None:
        result = stream().process(ToRows())
        for tag in (ROWS, TEXT):
            result.side_output(tag).to_sink(CollectSink())
        plan = result._builder.build("job", _streaming(), 1)
        operator = plan.operators[1]
        assert declared_type(plan, operator, 1) is Row
        assert declared_type(plan, operator, 2) is UNDECLARED
        codec = Codec(TypeRegistry.of(plan))  # records of the tag's class may cross processes
        assert codec.loads(codec.dumps(Row(1)), "a row") == Row(1)

    def test_schema_of_a_sink_is_checked(self) -> None:
        result = stream().process(ToRows())
        sink = FileSink("never written", schema=Other)
        result.side_output(ROWS).to_sink(sink)
        plan = result._builder.build("job", _streaming(), 1)
        with pytest.raises(SchemaError, match=r"records of Process .* do not fit .*: Row has no field 'text'"):
            check_sink(plan, plan.operators[-1])

    def test_order_of_declarations_does_not_matter_to_checkpoints(self) -> None:
        def program(*tags: Any, read: Any) -> Any:
            env = ExecutionEnvironment.get_instance(runtime="local")
            result = env.from_collection([1], "numbers").process(Declares(*tags)).with_uid("sort")
            result.side_output(read).process(Declares()).with_uid("next").to_sink(CollectSink())
            return describe(env.build_plan())

        before = program(ODD, TEXT, read=TEXT)
        assert differences(before, program(TEXT, ODD, ROWS, read=TEXT)) == []
        [difference] = differences(before, program(ODD, TEXT, read=ODD))
        assert "the output of input 0 was 'text' and is now 'odd'" in str(difference)
