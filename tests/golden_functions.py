"""The functions of the job whose savepoint is kept. Their results do not depend on the order of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dsv2 import DeadLetter, OutputTag
from dsv2.extension.event_time import EventTimeExtension, OneInputEventTimeStreamProcessFunction
from dsv2.functions import OneInputStreamProcessFunction, TwoInputBroadcastStreamProcessFunction
from dsv2.state import RedistributionStrategy, StateDeclaration, StateDeclarations, StateTtl
from dsv2.watermark import WatermarkDeclaration, new_builder
from tests.durations import ms
from tests.spans import Item

SUBTASK_0_AT, SUBTASK_1_AT = 50, 80
"""The numbers from which the subtasks of ``OneIsAhead`` send their aligned watermark."""

ROUND = new_builder("round").type_bool().combine_wait_for_all_channels(True).aligned().build()
FIVES = OutputTag("fives", int)


class Sum(NamedTuple):
    total: int
    last: int | None = None


SUM = StateDeclarations.value_state("sum", Sum, default=Sum(0))
RECENT = StateDeclarations.list_state("recent", int, ttl=StateTtl(ms(1000)))
SEEN = StateDeclarations.list_state_builder("seen", int).redistribute_by(RedistributionStrategy.UNION).build()
NUMBER = StateDeclarations.value_state("number", int, default=0)
RULES = StateDeclarations.map_state_builder("rules", str, int).build_broadcast()


def key_of(number: int) -> int:
    return number % 7


class Sums(OneInputStreamProcessFunction[int, Any]):
    """Has state of every kind that one input can have, timers and fields."""

    keyed_fields = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def uses_states(self) -> Any:
        return [SUM, RECENT, SEEN]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        key, states = key_of(record), ctx.state_manager
        self.counts[key] = self.counts.get(key, 0) + 1
        before = states.get_state(SUM).value()
        states.get_state(SUM).update(Sum(before.total + record, record))
        states.get_state(RECENT).add(record)
        states.get_state(SEEN).add(record)
        ctx.processing_time_manager.register_timer(500)
        output.collect((record, self.counts[key], before, states.get_state(RECENT).get()))

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(("timer", ctx.state_manager.current_key, timestamp))


class Ruled(TwoInputBroadcastStreamProcessFunction[int, int, Any]):
    """Emits the rule with each number from ``since`` on, when it has certainly arrived."""

    def __init__(self, since: int) -> None:
        self._since = since

    def uses_states(self) -> list[StateDeclaration]:
        return [RULES]

    def process_record_from_broadcast_input(self, record: int, ctx: Any) -> None:
        ctx.state_manager.get_state(RULES).put("rule", record)

    def process_record_from_non_broadcast_input(self, record: int, output: Any, ctx: Any) -> None:
        if record >= self._since:
            output.collect(("rule", record, ctx.state_manager.get_state(RULES).get("rule")))


class OneIsAhead(OneInputStreamProcessFunction[int, int]):
    """Each of two subtasks sends an aligned watermark once, the first one earlier. Its channel is blocked meanwhile."""

    def __init__(self) -> None:
        self.is_sent = False

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [ROUND]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        whole = ctx.non_partitioned_context
        due = SUBTASK_1_AT if whole.task_info.index_of_this_subtask else SUBTASK_0_AT
        if record >= due and not self.is_sent:
            self.is_sent = True
            whole.watermark_manager.emit_watermark(ROUND.new_watermark(True))
        output.collect(record)


class Gathers(OneInputStreamProcessFunction[int, Any]):
    """Emits the numbers and the watermarks that it receives."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(("gathered", record))

    def on_watermark(self, watermark: Any, output: Any, ctx: Any) -> Any:
        output.collect(("watermark", watermark.identifier))
        return super().on_watermark(watermark, output, ctx)


class OneIsIdle(OneInputStreamProcessFunction[int, int]):
    """The second of two subtasks is idle and emits nothing."""

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [EventTimeExtension.IDLE_STATUS_WATERMARK_DECLARATION]

    def open(self, ctx: Any) -> None:
        if ctx.task_info.index_of_this_subtask:
            idle = EventTimeExtension.IDLE_STATUS_WATERMARK_DECLARATION.new_watermark(True)
            ctx.watermark_manager.emit_watermark(idle)

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        if not ctx.non_partitioned_context.task_info.index_of_this_subtask:
            output.collect(record)


class Times(OneInputEventTimeStreamProcessFunction[int, Any]):
    """Emits event time."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        pass

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(("event time", timestamp))


class Picky(OneInputStreamProcessFunction[int, Any]):
    """Fails for each eleventh number, and emits each fifth to a side output."""

    def declare_outputs(self) -> Sequence[OutputTag[Any]]:
        return [FIVES]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        if record % 5 == 0:
            ctx.output(FIVES, record)
        if record % 11 == 0:
            raise ValueError(f"{record}")


def told(letter: DeadLetter[int]) -> Any:
    return "dead letter", letter.record


def paired(left: Any, right: Any, output: Any, ctx: Any) -> None:
    output.collect(("pair", left, right))


class CountsSpans(OneInputStreamProcessFunction[Item, Any]):
    """Numbers the records of each split."""

    def uses_states(self) -> list[StateDeclaration]:
        return [NUMBER]

    def process_record(self, record: Item, output: Any, ctx: Any) -> None:
        number = ctx.state_manager.get_state(NUMBER)
        number.update(number.value() + 1)
        output.collect((record.span, number.value()))
