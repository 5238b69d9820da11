"""Watermark declarations: the identifier of a watermark, how it is combined and whether it is forwarded (FLIP-467).

Functions return declarations from ``declare_watermarks``. A declaration applies to the whole job.

The scope of a watermark, that is the operators that act on it and how long a value counts, is part of the declaration.
So an identifier means the same in the whole job, and is checked when the plan is built.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any, Final, Generic, TypeAlias

from typing_extensions import TypeIs, TypeVar

from dsv2.checks.arguments import as_choice, as_milliseconds, is_whole_number
from dsv2.errors import InvalidWatermarkError, WatermarkDeclarationError
from dsv2.watermark.combination_function import (
    AtLeastChannels,
    CustomCombination,
    GeneralCombinationFunction,
    Quantile,
    family_of,
    is_idempotent,
)
from dsv2.watermark.delivery import Delivery, WatermarkDelivery
from dsv2.watermark.value_type import BOOL, LONG, ValueType
from dsv2.watermark.watermark import BoolWatermark, LongWatermark, Watermark

V = TypeVar("V", default=Any)


class WhenExceeded(Enum):
    """The consequence when a barrier has waited for too long, or holds too many records.

    ``FAIL``: The job fails. The error names the channels that are missing.
    ``PROCEED``: The barrier is delivered without them. If their barrier arrives later, their records before it were
    late: they belong to a later part than they should.
    """

    FAIL = "fail"
    PROCEED = "proceed"


@dataclass(frozen=True, slots=True)
class BarrierWait:
    """Marks a watermark declaration as a barrier, and limits how long it waits. ``barrier`` of a builder creates it.

    Attributes:
        timeout_ms: For how long a channel may be blocked, in ms of processing time. None: forever.
        max_records: How many records a subtask may hold behind the barrier. None: any number.
        when_exceeded: What happens beyond either limit.
    """

    timeout_ms: int | None = None
    max_records: int | None = None
    when_exceeded: WhenExceeded = WhenExceeded.FAIL

    def __str__(self) -> str:
        limits = [] if self.timeout_ms is None else [f"for at most {timedelta(milliseconds=self.timeout_ms)}"]
        limits += [] if self.max_records is None else [f"holds at most {self.max_records:,} records"]
        if not limits:
            return "waits without a limit"
        then = "then the job fails" if self.when_exceeded is WhenExceeded.FAIL else "then proceeds"
        return f"waits {' and '.join(limits)}, {then}"

    @staticmethod
    def of(timeout: timedelta | None, max_records: int | None, when_exceeded: WhenExceeded | str) -> BarrierWait:
        """Check the arguments that a user passed.

        Raises:
            WatermarkDeclarationError: One of them is invalid, or there is no limit to exceed.
        """
        error = WatermarkDeclarationError
        chosen = as_choice(WhenExceeded, when_exceeded, "when_exceeded", error=error)
        timeout_ms = None if timeout is None else as_milliseconds(timeout, "timeout", at_least=1, error=error)
        if max_records is not None and not (is_whole_number(max_records) and max_records >= 0):
            raise error(f"max_records must be a whole number of 0 or more, or None, not {max_records!r}.")
        if chosen is WhenExceeded.PROCEED and timeout is None and max_records is None:
            raise error("when_exceeded='proceed' needs a limit: pass timeout or max_records as well.")
        return BarrierWait(timeout_ms, max_records, chosen)


@dataclass(frozen=True, slots=True)
class WatermarkScope:
    """The scope of a watermark. The default is every operator that it reaches, without a limit in time.

    Attributes:
        uids: The operators that act on it, sorted. If there are ``groups`` as well, these and those.
        groups: The groups of operators that act on it, sorted.
        expires_after_ms: The processing time in ms after which the value of a channel no longer counts, unless it was
            sent again. None: it counts until another one replaces it.
        key_type: The type of the keys of a per-key watermark. None: it is not about keys.
    """

    uids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    expires_after_ms: int | None = None
    key_type: type[Any] | None = None

    @property
    def is_addressed(self) -> bool:
        """True if only some operators act on the watermark."""
        return bool(self.uids or self.groups)

    @staticmethod
    def checked_names(names: tuple[str, ...], known: tuple[str, ...], what: str) -> tuple[str, ...]:
        """Return the names in ``known`` and those that a user passes, sorted and each once.

        Args:
            names: The names that were passed.
            known: The names that were passed before.
            what: What they name, for the error message.

        Raises:
            WatermarkDeclarationError: There is none, or one is not a non-empty string.
        """
        if not names:
            raise WatermarkDeclarationError(f"Pass at least one {what}.")
        for name in names:
            if not isinstance(name, str) or not name.strip():
                raise WatermarkDeclarationError(f"A {what} must be a non-empty string, not {name!r}.")
        return tuple(sorted({*known, *names}))

    @staticmethod
    def checked_lifetime(duration: timedelta) -> int:
        """Return ``duration`` in ms. Raises ``WatermarkDeclarationError`` unless it is a duration of at least 1 ms."""
        return as_milliseconds(duration, "duration", at_least=1, error=WatermarkDeclarationError)


EVERYWHERE: Final = WatermarkScope()
"""The scope of a watermark that every operator acts on that it reaches, and that does not expire."""


class NumericWatermarkCombinationFunction(Enum):
    """Combinations of the ordered values of several channels. Vectors are combined entry by entry."""

    MIN = "min"
    MAX = "max"


class BoolWatermarkCombinationFunction(Enum):
    """Combinations of the boolean values of several channels."""

    AND = "and"
    OR = "or"


class WatermarkHandlingStrategy(Enum):
    """The framework's treatment of a watermark after a function returned PEEK."""

    FORWARD = "forward"
    IGNORE = "ignore"


WatermarkCombinationFunction: TypeAlias = (
    NumericWatermarkCombinationFunction
    | BoolWatermarkCombinationFunction
    | GeneralCombinationFunction
    | Quantile
    | AtLeastChannels
    | CustomCombination[Any]
)


_FUNCTION_KINDS = (
    *(NumericWatermarkCombinationFunction, BoolWatermarkCombinationFunction, GeneralCombinationFunction),
    *(Quantile, AtLeastChannels, CustomCombination),
)


@dataclass(frozen=True, slots=True)
class WatermarkCombinationPolicy:
    """A receiver's rules for combining the values of its channels.

    Attributes:
        combination_function: The function that combines the values.
        combine_wait_for_all_channels: Deliver nothing until every active channel has sent a value.
        aligned: Block a channel after its watermark until every active channel has sent its watermark.
        combine_across_inputs: A two-input function forwards one value combined over both inputs. False (default)
            forwards the value of each input separately, as Flink does.
        across_inputs_function: The function that combines the values of the inputs. None: that of the channels.
        delivery: The moment at which a combined value is delivered to the function of a receiver.
        barrier: It is a barrier, and waits so long. Barriers are aligned. None (default): it is not a barrier.

    (Flink ``WatermarkCombinationPolicy``.)
    """

    combination_function: WatermarkCombinationFunction
    combine_wait_for_all_channels: bool = False
    aligned: bool = False
    combine_across_inputs: bool = False
    across_inputs_function: WatermarkCombinationFunction | None = None
    delivery: Delivery[Any] = WatermarkDelivery.ON_CHANGE
    barrier: BarrierWait | None = None


@dataclass(frozen=True, slots=True)
class WatermarkDeclaration(Generic[V]):
    """Declares a watermark with values of type ``V`` (Flink ``WatermarkDeclaration``). Created by a builder.

    All parts count for equality: the same identifier must be declared in the same way everywhere in a job.

    Attributes:
        identifier: The identifier, unique in a job.
        combination_policy: How receivers combine the values of their channels.
        default_handling_strategy: Whether the watermark is forwarded.
        value_type: The type of the values.
        scope: Which operators act on it, how long a value counts, and whether it is about a key.
    """

    identifier: str
    combination_policy: WatermarkCombinationPolicy
    default_handling_strategy: WatermarkHandlingStrategy
    value_type: ValueType[V]
    scope: WatermarkScope = EVERYWHERE

    def __post_init__(self) -> None:
        policy = self.combination_policy
        if policy.aligned and not policy.combine_wait_for_all_channels:
            raise WatermarkDeclarationError(
                "An aligned watermark must wait for all channels: "
                "call combine_wait_for_all_channels(True) on the builder as well."
            )
        self._check_function(policy.combination_function)
        if policy.across_inputs_function is not None:
            self._check_function(policy.across_inputs_function)
        self._check_strategy()
        self._check_waiting()

    def new_watermark(self, value: V) -> Watermark[V]:
        """Create a watermark.

        Args:
            value: The value. A mapping or set is copied, so that it cannot change.

        Raises:
            InvalidWatermarkError: ``value`` is not of the declared type.
        """
        value = self.value_type.normalized(value)
        self.check_value(value)
        return Watermark(value, self.identifier)

    def watermark_of(self, value: V) -> Watermark[V]:
        """Return the watermark with ``value``, which is known to be valid. Called by the runtime."""
        return Watermark(value, self.identifier)

    def check_value(self, value: object) -> None:
        """Raise ``InvalidWatermarkError`` unless ``value`` is of the declared type."""
        kind = self.value_type
        if not kind.admits(value):
            raise InvalidWatermarkError(
                f"Watermark {self.identifier!r} was declared with {kind.builder_call}: value must be "
                f"{kind.requirement}, not {value!r}."
            )

    def matches(self, watermark: Watermark) -> TypeIs[Watermark[V]]:
        """Return whether ``watermark`` is one of this declaration. Type checkers then know the type of its value."""
        return watermark.identifier == self.identifier

    @property
    def watermark_class(self) -> type[Watermark[V]]:
        """The class of the watermarks."""
        return Watermark

    @property
    def has_deadline(self) -> bool:
        """True if receivers must act at a point in processing time: a value expires, or a barrier waits no longer."""
        barrier = self.combination_policy.barrier
        return self.scope.expires_after_ms is not None or (barrier is not None and barrier.timeout_ms is not None)

    def _check_function(self, function: WatermarkCombinationFunction) -> None:
        known = self.value_type.combinations
        if not isinstance(function, _FUNCTION_KINDS) or family_of(function) not in known:
            raise WatermarkDeclarationError(
                f"Watermark {self.identifier!r}: values of {self.value_type.builder_call} cannot be combined with "
                f"{getattr(function, 'value', function)}. Choose one of: {', '.join(known)}."
            )

    def _check_strategy(self) -> None:
        strategy = self.default_handling_strategy
        if not isinstance(strategy, WatermarkHandlingStrategy):
            raise WatermarkDeclarationError(
                f"Watermark {self.identifier!r}: a {type(self).__name__} requires a WatermarkHandlingStrategy, not "
                f"{strategy!r}."
            )
        function = self.combination_policy.combination_function
        if strategy is WatermarkHandlingStrategy.FORWARD and not is_idempotent(function):
            raise WatermarkDeclarationError(
                f"Watermark {self.identifier!r} cannot be forwarded, because it is combined with {function.value}: "
                f"every receiver would send its result on, and the next functions would combine these copies. Remove "
                f"default_handling_strategy_forward(). A function may emit the result as another watermark."
            )

    def _check_waiting(self) -> None:
        policy, family = self.combination_policy, family_of(self.combination_policy.combination_function)
        problem = None
        if policy.combine_wait_for_all_channels and family == "last":
            problem = "the last value is delivered when it arrives, so it cannot wait for all channels"
        elif policy.barrier is not None and (family != "min" or not policy.aligned or policy.combine_across_inputs):
            problem = "a barrier always cuts all inputs at the least id, so it cannot be combined in another way"
        elif policy.aligned and family == "at_least":
            problem = "an aligned watermark has a value of every channel, so it cannot count how many have one"
        elif policy.aligned and policy.delivery is not WatermarkDelivery.ON_CHANGE:
            problem = f"an aligned watermark is delivered once in each round, not {policy.delivery.value}"
        elif policy.aligned and self.scope.expires_after_ms is not None:
            problem = "channels wait behind an aligned watermark, so it cannot expire"
        elif policy.aligned and self.scope.key_type is not None:
            problem = "channels do not wait for a watermark about one key, so it cannot be aligned"
        elif policy.combine_across_inputs and self.scope.key_type is not None:
            problem = "a watermark about one key is not forwarded, so it cannot be combined across inputs"
        if problem is not None:
            raise WatermarkDeclarationError(f"Watermark {self.identifier!r}: {problem}. Omit one of the two.")


@dataclass(frozen=True, slots=True)
class LongWatermarkDeclaration(WatermarkDeclaration[int]):
    """Declares a watermark with 64-bit integer values (Flink ``LongWatermarkDeclaration``)."""

    value_type: ValueType[int] = field(default=LONG, repr=False)

    def new_watermark(self, value: int) -> LongWatermark:
        """Create a watermark.

        Args:
            value: A signed 64-bit integer.

        Raises:
            InvalidWatermarkError: ``value`` is not such an int, or is a bool.
        """
        self.check_value(value)
        return LongWatermark(value, self.identifier)

    def watermark_of(self, value: int) -> LongWatermark:
        return LongWatermark(value, self.identifier)

    @property
    def watermark_class(self) -> type[LongWatermark]:
        return LongWatermark


@dataclass(frozen=True, slots=True)
class BoolWatermarkDeclaration(WatermarkDeclaration[bool]):
    """Declares a watermark with boolean values (Flink ``BoolWatermarkDeclaration``)."""

    value_type: ValueType[bool] = field(default=BOOL, repr=False)

    def new_watermark(self, value: bool) -> BoolWatermark:
        """Create a watermark.

        Args:
            value: True or False.

        Raises:
            InvalidWatermarkError: ``value`` is not a bool.
        """
        self.check_value(value)
        return BoolWatermark(value, self.identifier)

    def watermark_of(self, value: bool) -> BoolWatermark:
        return BoolWatermark(bool(value), self.identifier)

    @property
    def watermark_class(self) -> type[BoolWatermark]:
        return BoolWatermark


class WatermarkHandlingResult(Enum):
    """The result of ``on_watermark`` (Flink ``WatermarkHandlingResult``)."""

    PEEK = "PEEK"
    POLL = "POLL"


def is_forwarded(result: WatermarkHandlingResult, strategy: WatermarkHandlingStrategy) -> bool:
    """Return whether the framework forwards the watermark. Called by the runtime after every ``on_watermark``."""
    return result is WatermarkHandlingResult.PEEK and strategy is WatermarkHandlingStrategy.FORWARD
