"""The contexts of all function kinds (Flink ``datastream.impl.context``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Any, Literal, TypeAlias

from dsv2.errors import ContractError, UndeclaredWatermarkError
from dsv2.model.context import RuntimeExecutionMode
from dsv2.model.output_tag import MainOutput, OutputTag
from dsv2.runtime.exchange.collector import CurrentTimestamp
from dsv2.runtime.operator.function_outputs import SideOutputs, WatermarkOutputs
from dsv2.runtime.report.metrics import DefaultMetricGroup
from dsv2.runtime.state.partition import PartitionState, PartitionTimers, SubtaskStates
from dsv2.spi import KeyedColumns
from dsv2.watermark import KeyedWatermark, KeyedWatermarkDeclaration, Watermark, WatermarkDeclaration
from dsv2.watermark.event_time import RESERVED

SendWatermark: TypeAlias = Callable[[str, Any, int | None], None]
"""Sends the value of an identifier along the output with a number, or along all of them."""


@dataclass(frozen=True, slots=True)
class DefaultJobInfo:
    """``JobInfo``."""

    job_name: str
    execution_mode: RuntimeExecutionMode


@dataclass(frozen=True, slots=True)
class DefaultTaskInfo:
    """``TaskInfo``."""

    task_name: str
    parallelism: int
    max_parallelism: int
    index_of_this_subtask: int
    attempt_number: int


class WatermarkEmitter:
    """Checks and sends watermarks, for readers of sources."""

    __slots__ = ("_expected", "_send")

    def __init__(self, declarations: Mapping[str, WatermarkDeclaration], send: Callable[[str, Any], None]) -> None:
        self._expected = {
            identifier: (one.watermark_class, one, one.value_type.admits) for identifier, one in declarations.items()
        }
        self._send = send

    def emit_watermark(self, watermark: Watermark) -> None:
        """Emit ``watermark`` after the records collected so far."""
        self._send(watermark.identifier, self._checked(watermark))

    def _checked(self, watermark: Watermark) -> Any:
        """Return what travels: the value, or the key and the value."""
        identifier = getattr(watermark, "identifier", "")
        expected = self._expected.get(identifier)
        if expected is None:
            raise UndeclaredWatermarkError(self._explain(watermark))
        kind, declaration, admits = expected
        if type(watermark) is not kind:
            raise ContractError(f"Watermark {identifier!r} must be a {kind.__name__} as declared, got {watermark}.")
        value = watermark.value
        if not admits(value):  # a valid value, the usual one, takes one call
            declaration.check_value(value)
        if isinstance(watermark, KeyedWatermark) and isinstance(declaration, KeyedWatermarkDeclaration):
            declaration.check_key(watermark.key)
            return watermark.key, value
        return value

    def _explain(self, watermark: object) -> str:
        if not isinstance(watermark, Watermark):
            return f"emit_watermark requires a watermark from declaration.new_watermark(value), got {watermark!r}."
        known = ", ".join(map(repr, sorted(self._expected))) or "none"
        return (
            f"Watermark {watermark.identifier!r} is not declared by any function or source of the job (declared: "
            f"{known}). Return its declaration from declare_watermarks()."
        )


class OutputWatermarkEmitter(WatermarkEmitter):
    """``WatermarkManager``."""

    __slots__ = ("_outputs", "_send_along")

    def __init__(
        self, declarations: Mapping[str, WatermarkDeclaration], send: SendWatermark, outputs: WatermarkOutputs
    ) -> None:
        super().__init__(declarations, lambda identifier, value: send(identifier, value, None))
        self._send_along = send
        self._outputs = outputs

    def emit_watermark(
        self,
        watermark: Watermark,
        *,
        output: OutputTag[Any] | MainOutput | Literal["first", "second"] | None = None,
    ) -> None:
        """Emit ``watermark`` after the records collected so far, along one output or all of them."""
        value = self._checked(watermark)
        number = None if output is None else self._number_of(output, watermark)
        self._send_along(watermark.identifier, value, number)

    def _number_of(self, output: OutputTag[Any] | MainOutput | Literal["first", "second"], watermark: Watermark) -> int:
        if watermark.identifier.startswith(RESERVED):
            raise ContractError(
                "Event time concerns all outputs: call emit_watermark without output, or generate it after the output."
            )
        return self._outputs.number_of(output)


@dataclass(slots=True, eq=False)
class NonPartitioned:
    """``NonPartitionedContext``, for one or two outputs."""

    job_info: DefaultJobInfo
    task_info: DefaultTaskInfo
    metric_group: DefaultMetricGroup
    watermark_manager: OutputWatermarkEmitter
    state_manager: SubtaskStates
    side_outputs: InitVar[SideOutputs]
    apply_to_all_partitions: Callable[[Callable[..., None]], None]
    """Calls a function once for each partition of this subtask."""
    output: Callable[[OutputTag[Any], Any], None] = field(init=False)
    output_stamped: Callable[[OutputTag[Any], Any, int | None], None] = field(init=False)

    def __post_init__(self, side_outputs: SideOutputs) -> None:
        self.output, self.output_stamped = side_outputs.output, side_outputs.output_stamped


class Partitioned:
    """``PartitionedContext``, for one or two outputs."""

    __slots__ = (
        "_current",
        "job_info",
        "metric_group",
        "non_partitioned_context",
        "output",
        "output_stamped",
        "processing_time_manager",
        "state_manager",
        "task_info",
    )

    def __init__(
        self,
        non_partitioned_context: NonPartitioned,
        state_manager: PartitionState,
        processing_time_manager: PartitionTimers,
        current: CurrentTimestamp,
    ) -> None:
        self.non_partitioned_context = ctx = non_partitioned_context
        self.state_manager = state_manager
        self.processing_time_manager = processing_time_manager
        self._current = current
        self.job_info, self.task_info, self.metric_group = ctx.job_info, ctx.task_info, ctx.metric_group
        self.output, self.output_stamped = ctx.output, ctx.output_stamped

    @property
    def timestamp(self) -> int | None:
        """The timestamp of the current record or timer in ms, or None."""
        return self._current.timestamp


class _WithColumns:
    """Adds the columns of all keys to a context."""

    def __init__(self, columns: KeyedColumns, *parts: Any) -> None:
        super().__init__(*parts)
        self.columns = columns
        self.keyed_state = columns.keyed_state
        self.event_timers = columns.event_timers
        self.processing_timers = columns.processing_timers


class ColumnarNonPartitioned(_WithColumns, NonPartitioned):
    """``ArrowNonPartitionedContext``."""


class ColumnarPartitioned(_WithColumns, Partitioned):
    """``ArrowContext``."""
