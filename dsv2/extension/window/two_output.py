"""The process function that runs a two-output window function."""

from __future__ import annotations

from dsv2.base.type_variables import IN, OUT1, OUT2
from dsv2.extension.event_time import TwoOutputEventTimeStreamProcessFunction
from dsv2.extension.window.callbacks import Shape
from dsv2.extension.window.contents import Contents
from dsv2.extension.window.functions import TwoOutputWindowStreamProcessFunction
from dsv2.extension.window.window_operator import OneInputRecordsWindowed
from dsv2.model.context import Collector, TwoOutputPartitionedContext


class TwoOutputWindowed(
    OneInputRecordsWindowed[TwoOutputWindowStreamProcessFunction[IN, OUT1, OUT2]],
    TwoOutputEventTimeStreamProcessFunction[IN, OUT1, OUT2],
):
    """The process function that ``window`` creates for a two-output window function."""

    shape = Shape(TwoOutputWindowStreamProcessFunction, ("on_record",), ("on_late_record",))

    def process_record(
        self,
        record: IN,
        first_output: Collector[OUT1],
        second_output: Collector[OUT2],
        ctx: TwoOutputPartitionedContext[OUT1, OUT2],
    ) -> None:
        self._windows_of(ctx, first_output, second_output).add(record, 0)

    def _new_contents(self) -> Contents:
        return self._new_records()
