"""Join functions and join types (Flink ``JoinFunction``, ``JoinType``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from enum import Enum
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeAlias

from dsv2.base.callables import takes
from dsv2.base.type_variables import IN1, IN2, OUT, IN1_contra, IN2_contra, OUT_co, T
from dsv2.errors import ConfigurationError, ContractError, PlanError
from dsv2.extension.window.contexts import WindowContext
from dsv2.functions import ProcessFunction
from dsv2.model.context import Collector, PartitionedContext, RuntimeContext
from dsv2.model.output_tag import OutputTag
from dsv2.spi import FailedCallbackError, Position, WrappingFunction, check_returned


class JoinType(Enum):
    """The pairs for which a join calls its function. (Flink has INNER only.)

    ``INNER``: every pair. ``LEFT``, ``RIGHT``, ``FULL``: also every record of the left side, the right side, or both
    without a partner, with None in place of the partner. ``SEMI``, ``ANTI``: every record of the left side with a
    partner, or without one, exactly once and with None as the right record.
    """

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"


JoinTypeChoice: TypeAlias = JoinType | Literal["inner", "left", "right", "full", "semi", "anti"]


class JoinFunction(ABC, Generic[IN1_contra, IN2_contra, OUT_co]):
    """Emits the results of a pair of records. Its fields are checkpointed with those of the join."""

    def declare_outputs(self) -> Collection[OutputTag[Any]]:
        """Declare the side outputs to which this function emits with ``ctx.output``. Called when it is added."""
        return ()

    @abstractmethod
    def process_record(
        self, left: IN1_contra, right: IN2_contra, output: Collector[OUT_co], ctx: RuntimeContext
    ) -> None:
        """Called for every pair that the join finds."""


class WindowJoinFunction(JoinFunction[IN1_contra, IN2_contra, OUT_co], ABC, Generic[IN1_contra, IN2_contra, OUT_co]):
    """A ``JoinFunction`` that also receives the window. It requires ``JoinMode.window``."""

    def process_record(
        self, left: IN1_contra, right: IN2_contra, output: Collector[OUT_co], ctx: RuntimeContext
    ) -> None:
        raise ContractError("process_record of a WindowJoinFunction is not called.")

    @abstractmethod
    def process_record_in_window(
        self,
        left: IN1_contra,
        right: IN2_contra,
        window: WindowContext,
        output: Collector[OUT_co],
        ctx: RuntimeContext,
    ) -> None:
        """Called for every pair. ``window`` has the bounds of the window, in ms."""


class PairTimes(NamedTuple):
    """The timestamps of a pair in ms, None for a record that is missing."""

    left: int | None
    right: int | None


class TimedJoinFunction(JoinFunction[IN1_contra, IN2_contra, OUT_co], ABC, Generic[IN1_contra, IN2_contra, OUT_co]):
    """A ``JoinFunction`` that also receives both timestamps. It requires ``JoinMode.interval`` or ``.versioned``."""

    def process_record(
        self, left: IN1_contra, right: IN2_contra, output: Collector[OUT_co], ctx: RuntimeContext
    ) -> None:
        raise ContractError("process_record of a TimedJoinFunction is not called.")

    @abstractmethod
    def process_timed_record(
        self,
        left: IN1_contra,
        right: IN2_contra,
        times: PairTimes,
        output: Collector[OUT_co],
        ctx: RuntimeContext,
    ) -> None:
        """Called for every pair. ``times`` has the timestamps of its records."""


class CallableJoinFunction(JoinFunction[IN1, IN2, OUT], Generic[IN1, IN2, OUT]):
    """Runs a callable ``(left, right, output, ctx)``, the counterpart of a lambda in Flink."""

    def __init__(self, function: Callable[[IN1, IN2, Collector[OUT], RuntimeContext], None]) -> None:
        self.function = function

    def process_record(self, left: IN1, right: IN2, output: Collector[OUT], ctx: RuntimeContext) -> None:
        return self.function(left, right, output, ctx)  # the caller checks that it is None


Joining: TypeAlias = JoinFunction[IN1, IN2, OUT] | Callable[[IN1, IN2, Collector[OUT], RuntimeContext], None]
"""The function of a join: a ``JoinFunction`` or a callable ``(left, right, output, ctx)``."""

LateRecord: TypeAlias = Callable[[T, Collector[OUT], RuntimeContext], None]
"""Called with a late record, which is not joined: ``(record, output, ctx)``. Its own state is not checkpointed."""


def as_join_function(function: Joining[IN1, IN2, OUT]) -> JoinFunction[IN1, IN2, OUT]:
    """Convert ``function`` to a ``JoinFunction``. Raises ``ConfigurationError`` if it cannot be called with a pair."""
    if isinstance(function, JoinFunction):
        return function
    given: Any = function  # its static type is a callable, but users may pass anything
    if isinstance(given, type | ProcessFunction) or not takes(given, 4):
        hint = " (an instance, not the class)" if isinstance(given, type) else ""
        raise ConfigurationError(
            f"A join takes a JoinFunction{hint} or a callable (left, right, output, ctx), not {given!r}."
        )
    return CallableJoinFunction(function)


def check_late(**callables: object) -> None:
    """Raise ``ConfigurationError`` if ``on_late_left`` or ``on_late_right`` cannot be called with a late record."""
    for name, function in callables.items():
        if function is not None and not takes(function, 3):
            raise ConfigurationError(f"{name} must be a callable (record, output, ctx), not {function!r}.")


def written_by_user(function: JoinFunction[IN1, IN2, OUT], *others: object) -> Collection[object]:
    """The user's own parts of a join: ``function``, or the callable in it, and those ``others`` that are not None."""
    own = function.function if isinstance(function, CallableJoinFunction) else function
    return [own, *(other for other in others if other is not None)]


class JoinProcessFunction(WrappingFunction):
    """Base class of joins, which call a join function with pairs of records."""

    dsv2_remember_keys = False
    _described: ClassVar[str]
    """The join in error messages."""

    def __init__(self, function: JoinFunction[Any, Any, Any]) -> None:
        self._function = function
        self._callback = "process_timed_record" if isinstance(function, TimedJoinFunction) else "process_record"

    def _on_late(self) -> Collection[object]:
        """The callables for late records; None for those that are not given."""
        return ()

    @property
    def wrapped(self) -> JoinFunction[Any, Any, Any]:
        return self._function

    @property
    def written_by_user(self) -> Collection[object]:
        return written_by_user(self._function, *self._on_late())

    @property
    def dsv2_reading_declares(self) -> bool:
        return reading_declares(self._function, *self._on_late())

    def dsv2_check_position(self, position: Position) -> None:
        require_keyed(self._described, position)

    def declare_outputs(self) -> Collection[OutputTag[Any]]:
        return self._function.declare_outputs()


def join_timed(
    function: JoinFunction[Any, Any, OUT],
    left: object,
    right: object,
    times: PairTimes,
    output: Collector[OUT],
    ctx: RuntimeContext,
) -> None:
    """Call ``function`` with a pair, and with its timestamps if it is a ``TimedJoinFunction``."""
    process: Callable[..., object]
    if isinstance(function, TimedJoinFunction):
        process = function.process_timed_record
        returned = process(left, right, times, output, ctx)
    else:
        process = function.process_record
        returned = process(left, right, output, ctx)
    check_returned(returned)


def take_late(
    name: str, on_late: LateRecord[T, OUT] | None, record: T, output: Collector[OUT], ctx: RuntimeContext
) -> None:
    """Pass a late record to ``on_late``, the argument ``name``, or drop and count it if ``on_late`` is None."""
    if on_late is None:
        ctx.metric_group.counter("late_records_dropped").inc()
        return
    try:
        process: Callable[..., object] = on_late
        check_returned(process(record, output, ctx))
    except BaseException as error:
        raise FailedCallbackError(name) from error


def deletes(is_deletion: Callable[[T], bool] | None, row: T) -> bool:
    """Return whether ``row`` deletes the row of its key, which the argument ``is_deletion`` decides."""
    if is_deletion is None:
        return False
    try:
        return is_deletion(row)
    except BaseException as error:
        raise FailedCallbackError("is_deletion") from error


def timestamp_of(join: str, ctx: PartitionedContext[OUT]) -> int:
    """Return the timestamp (ms) of the current record. ``join`` names the join in the error if there is none."""
    if ctx.timestamp is None:
        raise ContractError(
            f"{join} requires records with timestamps, but this record has none. Process the stream with a generator "
            "of EventTimeExtension.new_watermark_generator_builder(...) before key_by."
        )
    return ctx.timestamp


def reading_declares(function: JoinFunction[IN1, IN2, OUT], *on_late: object) -> bool:
    """Return whether the join calls callables, which cannot declare side outputs. See ``ProcessFunction``."""
    return isinstance(function, CallableJoinFunction) or any(one is not None for one in on_late)


def require_keyed(join: str, position: Position) -> None:
    """Raise ``PlanError`` unless the inputs are keyed; ``join`` names the join in the error."""
    if not position.keyed:
        raise not_keyed(join)


def not_keyed(join: str) -> PlanError:
    """Return the error for a join of streams without keys. ``join`` names it."""
    return PlanError(
        f"{join} requires two keyed streams, because it joins records with equal keys: call key_by on both before "
        f"connect_and_process. To join all records with all others, key both by a constant."
    )
