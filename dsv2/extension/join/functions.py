"""What users write for a join: a function of pairs, and which pairs (Flink ``JoinFunction``, ``JoinType``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from enum import Enum
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from dsv2.callables import takes
from dsv2.context import Collector, RuntimeContext
from dsv2.errors import ConfigurationError, PlanError
from dsv2.functions import ProcessFunction
from dsv2.spi import FailedCallbackError, Position, check_returned

__all__ = (
    "CallableJoinFunction",
    "JoinFunction",
    "JoinType",
    "JoinTypeChoice",
    "Joining",
    "LateRecord",
    "as_join_function",
    "check_late",
    "require_keyed",
    "take_late",
    "written_by_user",
)

IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
T = TypeVar("T")
IN1_contra = TypeVar("IN1_contra", contravariant=True)
IN2_contra = TypeVar("IN2_contra", contravariant=True)
OUT_co = TypeVar("OUT_co", covariant=True)


class JoinType(Enum):
    """What a join calls its function with. (Flink has INNER only.)

    ``INNER``: every pair. ``LEFT``, ``RIGHT``, ``FULL``: also every record of the left side, the right side, or both
    that has no partner, with None in the partner's place. ``SEMI``, ``ANTI``: every record of the left side that has a
    partner, or that has none; once, and always with None for the right side.
    """

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"


JoinTypeChoice: TypeAlias = JoinType | Literal["inner", "left", "right", "full", "semi", "anti"]


class JoinFunction(ABC, Generic[IN1_contra, IN2_contra, OUT_co]):
    """Turns a pair of records into any number of results. Its fields are checkpointed with the join's."""

    @abstractmethod
    def process_record(
        self, left: IN1_contra, right: IN2_contra, output: Collector[OUT_co], ctx: RuntimeContext
    ) -> None:
        """Called for every pair; which pairs those are is up to the join."""


class CallableJoinFunction(JoinFunction[IN1, IN2, OUT], Generic[IN1, IN2, OUT]):
    """A plain callable ``(left, right, output, ctx)`` where Flink takes a lambda."""

    def __init__(self, function: Callable[[IN1, IN2, Collector[OUT], RuntimeContext], None]) -> None:
        self.function = function

    def process_record(self, left: IN1, right: IN2, output: Collector[OUT], ctx: RuntimeContext) -> None:
        return self.function(left, right, output, ctx)  # for the caller, who checks that it is None


Joining: TypeAlias = JoinFunction[IN1, IN2, OUT] | Callable[[IN1, IN2, Collector[OUT], RuntimeContext], None]
"""What every join takes: a ``JoinFunction`` or a plain callable."""

LateRecord: TypeAlias = Callable[[T, Collector[OUT], RuntimeContext], None]
"""Takes a record that came too late to be joined: ``(record, output, ctx)``. What it keeps is not checkpointed."""


def as_join_function(function: Joining[IN1, IN2, OUT]) -> JoinFunction[IN1, IN2, OUT]:
    """``function`` as an object of one class. Raises ``ConfigurationError`` for what cannot be called with a pair."""
    if isinstance(function, JoinFunction):
        return function
    wrong: Any = function  # as far as its type tells, it is a callable
    if isinstance(wrong, type | ProcessFunction) or not takes(wrong, 4):
        hint = " (an instance, not the class)" if isinstance(wrong, type) else ""
        raise ConfigurationError(
            f"A join takes a JoinFunction{hint} or a callable (left, right, output, ctx), not {wrong!r}."
        )
    return CallableJoinFunction(function)


def check_late(**callables: object) -> None:
    """Raise ``ConfigurationError`` for one of ``on_late_left`` and ``on_late_right`` that cannot be called."""
    for name, function in callables.items():
        if function is not None and not takes(function, 3):
            raise ConfigurationError(f"{name} is a callable (record, output, ctx), not {function!r}.")


def written_by_user(function: JoinFunction[IN1, IN2, OUT], *others: object) -> Collection[object]:
    """What the user wrote of a join: ``function``, or what it calls, and those of ``others`` that are not None."""
    own = function.function if isinstance(function, CallableJoinFunction) else function
    return [own, *(other for other in others if other is not None)]


def take_late(
    name: str, on_late: LateRecord[T, OUT] | None, record: T, output: Collector[OUT], ctx: RuntimeContext
) -> None:
    """Give a late record to ``on_late``, which the user knows as ``name``; without one it is dropped and counted."""
    if on_late is None:
        ctx.metric_group.counter("late_records_dropped").inc()
        return
    try:
        process: Callable[..., object] = on_late
        check_returned(process(record, output, ctx))
    except BaseException as error:
        raise FailedCallbackError(name) from error


def require_keyed(join: str, position: Position) -> None:
    """Raise ``PlanError`` unless the inputs are keyed; ``join`` names the join in the error."""
    if not position.keyed:
        raise PlanError(
            f"{join} works on two keyed streams, because records meet where their keys are equal: call key_by on both "
            f"before connect_and_process. To join all records with all others, key both by a constant."
        )
