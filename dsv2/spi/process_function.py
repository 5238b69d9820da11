"""The base class of all process functions (Flink ``ProcessFunction``)."""

from __future__ import annotations

from abc import ABC
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from dsv2.base.type_variables import IN_contra, OUT_co
from dsv2.model.async_settings import AsyncSettings
from dsv2.model.output_tag import OutputTag
from dsv2.state import StateDeclaration
from dsv2.watermark import WatermarkDeclaration

F = TypeVar("F", bound="type[ProcessFunction]")

_AT_END = "_emits_only_at_end"


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a function in a pipeline.

    Attributes:
        keyed: Whether its input is partitioned by key.
        parallel: Whether it is not on a global stream.
        key_preserving: Whether its outputs have key selectors, so that the stream stays keyed.
    """

    keyed: bool
    parallel: bool
    key_preserving: bool


class ProcessFunction:
    """Base class of the four function kinds. Subclass one of those.

    Instance fields are part of the checkpoint: a field that has changed since the function was constructed is stored
    with the subtask's state and restored in the next micro-batch and after a restart. Fields that never change take
    their value from the program. Define ``__getstate__`` and ``__setstate__`` to choose what is stored.

    A job that starts from a savepoint may have another parallelism. Fields that are equal in all subtasks are copied.
    For others, name them in ``keyed_fields``, or define ``redistribute_fields(self, parts, parallelism)``. It gets the
    changed fields of each old subtask by name (the results of ``__getstate__`` if defined), ordered by subtask, and
    returns a list with the fields of each new subtask. It must return equal results for equal arguments.
    """

    keyed_fields: Collection[str] = ()
    """The names of dict fields whose keys are the keys of the stream. When the parallelism changes, each entry moves to
    the subtask that owns its key."""

    dsv2_remember_keys = True
    """True if ``apply_to_all_partitions`` visits every key ever seen, or only keys with state or timers.

    Set it to False if the number of keys is unbounded: remembered keys stay in the state forever.
    """

    dsv2_refuses_error_policy: ClassVar[str | None] = None
    """The reason why failed callbacks cannot be skipped or repeated (``ErrorPolicy``), or None. For extensions."""

    dsv2_has_event_time = False
    """True if the function acts as event time advances, which may be the wall clock. For extensions."""

    @property
    def dsv2_waits_for_event_time(self) -> bool:
        """True if the function does its work only as event time advances. Explanations of plans use it."""
        return self.dsv2_has_event_time

    @property
    def dsv2_waits_for_end(self) -> bool:
        """True if the function emits nothing before the end of its input. Explanations of plans use it."""
        return self.dsv2_emits_only_at_end

    dsv2_inherits_parallelism = False
    """True if it has the parallelism of its input, so that records are not exchanged. For extensions."""

    dsv2_part_of = ""
    """The method of a stream that adds the function beside the user's own. Errors name it. For extensions."""

    dsv2_partition_by_constant = False
    """True if the function runs on a non-keyed stream as if all records had the same key. For extensions."""

    @property
    def dsv2_reading_declares(self) -> bool:
        """True if reading a side output declares it, because the function calls callables, which cannot declare."""
        return False

    @property
    def dsv2_emits_only_at_end(self) -> bool:
        """True if the class is marked with ``no_output_until_end_of_input``."""
        return _AT_END in vars(type(self))

    def dsv2_check_position(self, position: Position) -> None:
        """Check whether the function can run at ``position``. Called once, while the plan is built.

        Raises:
            PlanError: The function cannot run there.
        """

    def dsv2_uses_processing_timers(self) -> bool:
        """Return whether the job must run micro-batches without new records. Called once, while the plan is built."""
        owner = next((kind for kind in type(self).__mro__ if "on_processing_timer" in vars(kind)), ProcessFunction)
        return not owner.__module__.startswith(("dsv2.functions", "dsv2.spi"))

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        """Declare the watermarks that this function emits. Called once, while the plan is built."""
        return ()

    def declare_outputs(self) -> Collection[OutputTag[Any]]:
        """Declare the side outputs to which this function emits with ``ctx.output``. Called when it is added."""
        return ()

    def uses_states(self) -> Collection[StateDeclaration]:
        """Declare the states that this function uses. Called while the plan is built and by each subtask.

        Building the plan raises ``IllegalRedistributionModeError`` if the stream does not support the redistribution
        mode of a state.
        """
        return ()

    def close(self) -> None:
        """Release resources acquired in ``open``. Called once, after the last input ended or a callback failed.

        Nothing can be emitted here. Stopping a streaming job does not close its functions, because the job can resume.
        """


def no_output_until_end_of_input(function_class: F) -> F:
    """Class decorator that marks a function as emitting nothing before its input has ended.

    Emitting earlier raises an error that names the function. Subclasses do not inherit the mark.

    Source: FLIP-466 ``NoOutputUntilEndOfInput``.
    """
    setattr(function_class, _AT_END, True)
    return function_class


class AsyncFunction(ProcessFunction, ABC, Generic[IN_contra, OUT_co]):
    """A function with one input and one output that processes several records at the same time."""

    async_settings: AsyncSettings = AsyncSettings()
    """Limits and order of the calls. Set it in the class or in the constructor."""
