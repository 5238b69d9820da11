"""What all process functions share (Flink ``ProcessFunction``)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeVar

from dsv2.state import StateDeclaration
from dsv2.watermark import WatermarkDeclaration

__all__ = ("Position", "ProcessFunction", "no_output_until_end_of_input")

F = TypeVar("F", bound="type[ProcessFunction]")

_AT_END = "_emits_only_at_end"


@dataclass(frozen=True, slots=True)
class Position:
    """Where in a pipeline a function stands.

    ``keyed``: its partitions are keys. ``parallel``: not on a global stream. ``key_preserving``: called with key
    selectors for its outputs.
    """

    keyed: bool
    parallel: bool
    key_preserving: bool


class ProcessFunction:
    """Base of the four kinds of functions; subclass one of those.

    Instance fields are part of the checkpoint: a field that changed since the function was built is kept
    with the subtask's state and is there again in the next micro-batch and after a restart. Fields that
    never change follow the program. Define ``__getstate__`` and ``__setstate__`` to decide for yourself.
    """

    dsv2_remember_keys = True
    """Whether ``apply_to_all_partitions`` visits every key that was ever seen, or only those that have state or timers.

    False for functions over keys without end: what is remembered stays in the state for ever.
    """

    dsv2_has_event_time = False
    """Whether the function acts as event time goes on, which may be the wall clock; for extensions."""

    dsv2_partition_by_constant = False
    """Whether a function on a stream that is not keyed runs as if all its records had one key; for extensions."""

    @property
    def dsv2_emits_only_at_end(self) -> bool:
        """Whether the class is marked with ``no_output_until_end_of_input``."""
        return _AT_END in vars(type(self))

    def dsv2_check_position(self, position: Position) -> None:
        """Raise ``PlanError`` if the function cannot run there. Called once, while the plan is built."""

    def dsv2_uses_processing_timers(self) -> bool:
        """Whether the job has to go on when no records come. Asked once, while the plan is built."""
        owner = next((kind for kind in type(self).__mro__ if "on_processing_timer" in vars(kind)), ProcessFunction)
        return not owner.__module__.startswith(("dsv2.functions", "dsv2.spi"))

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        """The watermarks that this function brings into the job; read once, while the plan is built."""
        return ()

    def uses_states(self) -> Collection[StateDeclaration]:
        """The states that this function asks for; read while the plan is built, and by each subtask.

        A redistribution mode that the stream does not have raises ``IllegalRedistributionModeError`` then.
        """
        return ()

    def close(self) -> None:
        """Release what ``open`` took. Called once, after the last input ended or after a callback failed.

        Nothing can be emitted here. A streaming job that is stopped goes on later: it does not close.
        """


def no_output_until_end_of_input(function_class: F) -> F:
    """Class decorator: the function emits nothing before its input has ended (FLIP-466 ``NoOutputUntilEndOfInput``).

    Emitting earlier is an error that names the function. Subclasses do not inherit it.
    """
    setattr(function_class, _AT_END, True)
    return function_class
