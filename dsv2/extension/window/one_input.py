"""The process function that runs a one-input window function."""

from __future__ import annotations

from dsv2.base.type_variables import IN, OUT
from dsv2.extension.event_time import OneInputEventTimeStreamProcessFunction
from dsv2.extension.window.callbacks import Shape
from dsv2.extension.window.contents import Contents
from dsv2.extension.window.functions import IncrementalFunction, OneInputWindowStreamProcessFunction
from dsv2.extension.window.window_operator import OneInputRecordsWindowed
from dsv2.model.context import Collector, PartitionedContext


class OneInputWindowed(
    OneInputRecordsWindowed[OneInputWindowStreamProcessFunction[IN, OUT]],
    OneInputEventTimeStreamProcessFunction[IN, OUT],
):
    """The process function of a window function, of ``aggregate`` and of ``reduce``."""

    shape = Shape(OneInputWindowStreamProcessFunction, ("on_record",), ("on_late_record",))

    def process_record(self, record: IN, output: Collector[OUT], ctx: PartitionedContext[OUT]) -> None:
        if ctx is not self._ctx:
            self._enter(ctx, output)
        self._windows.add(record, 0)

    def _new_contents(self) -> Contents:
        function = self.function
        return function.new_contents() if isinstance(function, IncrementalFunction) else self._new_records()
