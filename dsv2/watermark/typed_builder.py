"""The common part of the builders of watermark declarations, for values of any type."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

from dsv2.base.type_variables import V
from dsv2.checks.arguments import as_choice, is_number, is_whole_number
from dsv2.checks.missing_methods import missing_method
from dsv2.errors import WatermarkDeclarationError
from dsv2.watermark.combination_function import (
    AtLeastChannels,
    GeneralCombinationFunction,
    Quantile,
    is_idempotent,
)
from dsv2.watermark.declaration import (
    EVERYWHERE,
    BarrierWait,
    NumericWatermarkCombinationFunction,
    WatermarkCombinationFunction,
    WatermarkCombinationPolicy,
    WatermarkDeclaration,
    WatermarkHandlingStrategy,
    WatermarkScope,
    WhenExceeded,
)
from dsv2.watermark.delivery import DeliverWhen, WatermarkDelivery
from dsv2.watermark.keyed import Buildable, PerKeyBuilder
from dsv2.watermark.laws import checked_combination
from dsv2.watermark.value_type import ValueType

K = TypeVar("K", bound=Hashable)


class ScopedBuilder:
    """Sets which operators act on the watermark, and how long a value counts."""

    _scope = EVERYWHERE

    def deliver_to(self, *uids: str) -> Self:
        """Address the watermark to operators: only their functions receive it. Default: all that it reaches.

        Other operators between the emitter and these combine it and pass it on, even if it is declared to be ignored.
        Calls add up, also those of ``deliver_to_group``.

        Args:
            uids: Uids that the program sets on functions (``with_uid``). They are checked when the plan is built.

        Raises:
            WatermarkDeclarationError: There is none, or one is not a non-empty string.
        """
        self._scope = replace(self._scope, uids=WatermarkScope.checked_names(uids, self._scope.uids, "uid"))
        return self

    def deliver_to_group(self, *groups: str) -> Self:
        """Address the watermark to all operators of groups (``with_group``). See ``deliver_to``.

        Args:
            groups: The names of the groups.

        Raises:
            WatermarkDeclarationError: There is none, or one is not a non-empty string.
        """
        names = WatermarkScope.checked_names(groups, self._scope.groups, "group")
        self._scope = replace(self._scope, groups=names)
        return self

    def expire_after(self, duration: timedelta) -> Self:
        """Let the value of a channel count for a limited time. Default: until another value replaces it.

        The value is forgotten after ``duration`` of processing time in which the channel has not sent it, or another
        one, again.

        Args:
            duration: At least 1 ms.

        Raises:
            WatermarkDeclarationError: ``duration`` is not a ``timedelta``, or too small.
        """
        self._scope = replace(self._scope, expires_after_ms=WatermarkScope.checked_lifetime(duration))
        return self

    def per_key(self: Buildable[V], key_type: type[K]) -> PerKeyBuilder[V, K]:
        """Declare a watermark about one key. This is the last step before ``build``.

        It is emitted with a key, and handled by the next keyed functions in the partition of that key
        (``on_key_watermark``). The values of their channels are combined for each key, and kept with its state.

        Args:
            key_type: The type of the keys.

        Raises:
            WatermarkDeclarationError: ``key_type`` is not a type of hashable values.
        """
        return PerKeyBuilder(self, key_type)


_ORDERED = "Its values need an order: type_long(), type_float(), type_str() or type_of(data_class)."
_INSTEAD = {
    "barrier": _ORDERED,
    "combine_function_and": "Declare it with type_bool().",
    "combine_function_at_least": f"{_ORDERED} Or declare it with type_bool().",
    "combine_function_count": "Declare it with type_long().",
    "combine_function_intersection": "Declare it with type_set(member).",
    "combine_function_max": f"{_ORDERED} Or declare it with type_vector().",
    "combine_function_min": f"{_ORDERED} Or declare it with type_vector().",
    "combine_function_or": "Declare it with type_bool().",
    "combine_function_quantile": _ORDERED,
    "combine_function_sum": "Declare it with type_long() or type_float().",
    "combine_function_union": "Declare it with type_set(member).",
}
"""Types of values that have a method."""


class TypedBuilder(ScopedBuilder, Generic[V]):
    """The second step of a declaration, with values of type ``V``. All methods but ``build`` return the builder."""

    def __init__(self, identifier: str, value_type: ValueType[V], function: WatermarkCombinationFunction) -> None:
        self._identifier = identifier
        self._type = value_type
        self._policy = WatermarkCombinationPolicy(function)
        self._given_strategy: WatermarkHandlingStrategy | None = None

    if not TYPE_CHECKING:  # otherwise type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            raise missing_method(self, type(self).__name__, name, _INSTEAD)

    def combine_function_last(self) -> Self:
        """Combine to the value that arrived last, from whichever channel.

        There is no order between channels, so subtasks of a receiver may see different last values. A channel that
        becomes idle or ends changes nothing.
        """
        return self._combined_by(GeneralCombinationFunction.LAST)

    def combine(
        self,
        function: Callable[[V, V], V],
        *,
        neutral: V | None = None,
        samples: Collection[V] = (),
        idempotent: bool | None = None,
    ) -> Self:
        """Combine with a function of two values. It must be pure, commutative and associative.

        Args:
            function: Combines two values.
            neutral: The value that stands for a channel without a value, to check that leaving it out is the same:
                ``function(neutral, x) == x``. None (default): it is not checked.
            samples: Values on which the laws are checked, in all combinations of three. Values that a job may have,
                including extreme ones. None (default): the laws are not checked, and ``idempotent`` is required.
            idempotent: Whether ``function(x, x) == x``. If it is not, the watermark is not forwarded. None (default):
                the samples decide.

        Raises:
            WatermarkDeclarationError: A law does not hold for the samples, or there are neither samples nor
                ``idempotent``.
        """
        custom = checked_combination(self._identifier, self._type, function, neutral, samples, idempotent)
        return self._combined_by(custom)

    def combine_wait_for_all_channels(self, wait: bool) -> Self:
        """Set whether receivers wait until every channel has sent a value. Default: False."""
        return self._with(combine_wait_for_all_channels=_as_bool(wait, "wait"))

    def aligned(self, aligned: bool = True) -> Self:
        """Set whether the watermark blocks a channel until all channels have sent theirs. Default: False.

        Requires ``combine_wait_for_all_channels(True)``. (In Flink this is internal: ``Alignable``.)
        """
        return self._with(aligned=_as_bool(aligned, "aligned"))

    def combine_across_inputs(self, combine: bool, function: WatermarkCombinationFunction | None = None) -> Self:
        """Set whether a two-input function forwards one value combined over both inputs. Default: False, as Flink.

        Args:
            combine: Whether to combine.
            function: How the values of the inputs are combined. None (default): as those of the channels.
        """
        if not _as_bool(combine, "combine") and function is not None:
            raise WatermarkDeclarationError("combine_across_inputs(False) combines nothing: omit the function.")
        return self._with(combine_across_inputs=combine, across_inputs_function=function)

    def deliver_on_change(self) -> Self:
        """Deliver a combined value if it differs from the last one (the default)."""
        return self._with(delivery=WatermarkDelivery.ON_CHANGE)

    def deliver_on_arrival(self) -> Self:
        """Deliver the combined value whenever a value arrives, even if it is the same again."""
        return self._with(delivery=WatermarkDelivery.ON_ARRIVAL)

    def deliver_when(self, predicate: Callable[[V, V | None], bool]) -> Self:
        """Deliver a changed value only when a predicate holds. The others are neither delivered nor forwarded.

        Args:
            predicate: Called with the combined value and the one delivered last (None: there is none). It must be
                pure. Example: ``lambda backlog, before: before is None or (backlog > 100) != (before > 100)``.
        """
        if not callable(predicate):
            raise WatermarkDeclarationError(f"deliver_when requires a function of two values, not {predicate!r}.")
        return self._with(delivery=DeliverWhen(predicate))

    def default_handling_strategy(self, strategy: WatermarkHandlingStrategy | Literal["forward", "ignore"]) -> Self:
        """Set what the framework does after a function returned PEEK.

        The default is FORWARD, and IGNORE if the combination of copies of a value is not that value (sum, count,
        "at least k channels", some functions of a program).
        """
        chosen = as_choice(WatermarkHandlingStrategy, strategy, "strategy", error=WatermarkDeclarationError)
        self._given_strategy = chosen
        return self

    def default_handling_strategy_forward(self) -> Self:
        """Forward the watermark unless the function returns POLL."""
        return self.default_handling_strategy(WatermarkHandlingStrategy.FORWARD)

    def default_handling_strategy_ignore(self) -> Self:
        """Do not forward the watermark."""
        return self.default_handling_strategy(WatermarkHandlingStrategy.IGNORE)

    def _combined_by(self, function: WatermarkCombinationFunction) -> Self:
        return self._with(combination_function=function)

    def _with(self, **changes: Any) -> Self:
        self._policy = replace(self._policy, **changes)
        return self

    @property
    def _strategy(self) -> WatermarkHandlingStrategy:
        if self._given_strategy is not None:
            return self._given_strategy
        copies = is_idempotent(self._policy.combination_function)
        return WatermarkHandlingStrategy.FORWARD if copies else WatermarkHandlingStrategy.IGNORE


class ExtremumBuilder(TypedBuilder[V]):
    """Values that have a minimum and a maximum."""

    def combine_function_min(self) -> Self:
        """Combine to the smallest value of all channels. Of vectors, entry by entry."""
        return self._combined_by(NumericWatermarkCombinationFunction.MIN)

    def combine_function_max(self) -> Self:
        """Combine to the greatest value of all channels. Of vectors, entry by entry."""
        return self._combined_by(NumericWatermarkCombinationFunction.MAX)


class QuorumBuilder(TypedBuilder[V]):
    """Values that several channels can reach."""

    def combine_function_at_least(self, channels: int) -> Self:
        """Combine to the greatest value that at least ``channels`` channels have reached. True is more than False.

        Nothing is delivered until that many active channels have sent a value. The result is not forwarded.
        """
        if not is_whole_number(channels) or channels < 1:
            raise WatermarkDeclarationError(f"channels must be a whole number of at least 1, not {channels!r}.")
        return self._combined_by(AtLeastChannels(channels))


class OrderedBuilder(ExtremumBuilder[V], QuorumBuilder[V]):
    """Values that are ordered."""

    def barrier(
        self,
        *,
        timeout: timedelta | None = None,
        max_records: int | None = None,
        when_exceeded: WhenExceeded | Literal["fail", "proceed"] = WhenExceeded.FAIL,
    ) -> Self:
        """Make the watermark a barrier, and its value an id. Ids must increase in each subtask that sends them.

        A barrier with an id states that all records before it belong to the parts up to that id. It blocks its channel
        until each channel of each input has sent that id or a greater one. Then the function receives it once (with
        two inputs in the callback of the first one), and it is forwarded once.

        Args:
            timeout: For how long a channel may be blocked, in processing time. None (default): forever.
            max_records: How many records each subtask may hold behind the barrier. None (default): any number.
            when_exceeded: What happens beyond either limit. ``"fail"`` (default): the job fails. ``"proceed"``: the
                barrier is delivered without the channels that are missing.

        Raises:
            WatermarkDeclarationError: An argument is invalid, or there is no limit to exceed.
        """
        wait = BarrierWait.of(timeout, max_records, when_exceeded)
        least = NumericWatermarkCombinationFunction.MIN
        return self._with(combination_function=least, combine_wait_for_all_channels=True, aligned=True, barrier=wait)

    def combine_function_quantile(self, quantile: float) -> Self:
        """Combine to the value of a channel such that this fraction of the channels has no greater one.

        Args:
            quantile: From 0 (the smallest) to 1 (the greatest); 0.5 is the lower median.
        """
        if not is_number(quantile) or not 0 <= quantile <= 1:
            raise WatermarkDeclarationError(f"quantile must be a number from 0 to 1, not {quantile!r}.")
        return self._combined_by(Quantile(float(quantile)))


class WatermarkBuilder(TypedBuilder[V]):
    """A builder whose declaration has no class of its own."""

    def build(self) -> WatermarkDeclaration[V]:
        """Build the declaration.

        Raises:
            WatermarkDeclarationError: The settings contradict each other; the error says why.
        """
        return WatermarkDeclaration(self._identifier, self._policy, self._strategy, self._type, self._scope)


def _as_bool(value: bool, parameter: str) -> bool:
    if not isinstance(value, bool):
        raise WatermarkDeclarationError(f"{parameter} must be True or False, not {value!r}.")
    return value
