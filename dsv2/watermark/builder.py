"""Builders of watermark declarations (Flink ``WatermarkDeclarations``)."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Generic, Self

from dsv2.base.type_variables import T, V
from dsv2.errors import WatermarkDeclarationError
from dsv2.watermark.combination_function import GeneralCombinationFunction
from dsv2.watermark.declaration import (
    BoolWatermarkCombinationFunction,
    BoolWatermarkDeclaration,
    LongWatermarkDeclaration,
    NumericWatermarkCombinationFunction,
)
from dsv2.watermark.event_time import RESERVED
from dsv2.watermark.typed_builder import ExtremumBuilder, OrderedBuilder, QuorumBuilder, WatermarkBuilder
from dsv2.watermark.value_type import BOOL, FLOAT, LONG, STR, VECTOR, DataType, SetType


def new_builder(identifier: str) -> WatermarkDeclarationBuilder:
    """Start a watermark declaration.

    Args:
        identifier: Case-sensitive and unique within a job.

    Raises:
        WatermarkDeclarationError: ``identifier`` is empty, or has the prefix reserved for event time.

    Examples:
        >>> new_builder("newest").type_long().combine_function_max().build().identifier
        'newest'
    """
    return WatermarkDeclarationBuilder(identifier)


class WatermarkDeclarations:
    """Starts watermark declarations, under Flink's name. For state see ``StateDeclarations``."""

    new_builder = staticmethod(new_builder)


class WatermarkDeclarationBuilder:
    """The first step of a declaration: the type of the values."""

    def __init__(self, identifier: str) -> None:
        if not isinstance(identifier, str) or not identifier:
            raise WatermarkDeclarationError(f"A watermark identifier must be a non-empty string, not {identifier!r}.")
        if identifier.startswith(RESERVED):
            raise WatermarkDeclarationError(
                f"Identifiers that begin with {RESERVED} are reserved for event time. Choose an identifier other than "
                f"{identifier!r}, or use the declarations of EventTimeExtension."
            )
        self._identifier = identifier

    def type_long(self) -> LongWatermarkBuilder:
        """Values are 64-bit integers. They are combined with MIN by default."""
        return LongWatermarkBuilder(self._identifier, LONG, NumericWatermarkCombinationFunction.MIN)

    def type_bool(self) -> BoolWatermarkBuilder:
        """Values are booleans. They are combined with AND by default."""
        return BoolWatermarkBuilder(self._identifier, BOOL, BoolWatermarkCombinationFunction.AND)

    def type_float(self) -> FloatWatermarkBuilder:
        """Values are finite floating-point numbers. They are combined with MIN by default."""
        return FloatWatermarkBuilder(self._identifier, FLOAT, NumericWatermarkCombinationFunction.MIN)

    def type_str(self) -> StrWatermarkBuilder:
        """Values are strings. They are combined with LAST by default."""
        return StrWatermarkBuilder(self._identifier, STR, GeneralCombinationFunction.LAST)

    def type_of(self, data_class: type[V]) -> DataWatermarkBuilder[V]:
        """Values are instances of a class. They are combined with LAST by default.

        Args:
            data_class: A frozen dataclass or a NamedTuple class. Its instances must be hashable. If it defines an
                order (``@dataclass(frozen=True, order=True)``), they also have a minimum and a maximum.

        Raises:
            WatermarkDeclarationError: ``data_class`` is something else.
        """
        return DataWatermarkBuilder(self._identifier, DataType(data_class), GeneralCombinationFunction.LAST)

    def type_vector(self) -> VectorWatermarkBuilder:
        """Values are vector clocks: one integer for each name, such as a split or partition.

        They are merged entry by entry, with MAX by default. An entry that a vector lacks is neutral.
        """
        return VectorWatermarkBuilder(self._identifier, VECTOR, NumericWatermarkCombinationFunction.MAX)

    def type_set(self, member: type[T]) -> SetWatermarkBuilder[T]:
        """Values are sets. They are combined with UNION by default.

        Args:
            member: The class of the members: ``str``, ``int``, ``float``, ``bool``, ``bytes``, or as in ``type_of``.

        Raises:
            WatermarkDeclarationError: ``member`` is something else.
        """
        return SetWatermarkBuilder(self._identifier, SetType(member), GeneralCombinationFunction.UNION)


class LongWatermarkBuilder(OrderedBuilder[int]):
    """The second step of a declaration with integer values."""

    def combine_function_sum(self) -> Self:
        """Combine to the sum of the values of all active channels. The result is not forwarded."""
        return self._combined_by(GeneralCombinationFunction.SUM)

    def combine_function_count(self) -> Self:
        """Combine to the number of active channels that have sent a value. The result is not forwarded."""
        return self._combined_by(GeneralCombinationFunction.COUNT)

    def build(self) -> LongWatermarkDeclaration:
        """Build the declaration.

        Raises:
            WatermarkDeclarationError: The settings contradict each other. For example, the watermark is aligned but
                does not wait for all channels, or is combined with a sum and forwarded.
        """
        return LongWatermarkDeclaration(self._identifier, self._policy, self._strategy, scope=self._scope)


class BoolWatermarkBuilder(QuorumBuilder[bool]):
    """The second step of a declaration with boolean values."""

    def combine_function_and(self) -> Self:
        """Combine to True if the values of all channels are True (the default)."""
        return self._combined_by(BoolWatermarkCombinationFunction.AND)

    def combine_function_or(self) -> Self:
        """Combine to True if the value of any channel is True."""
        return self._combined_by(BoolWatermarkCombinationFunction.OR)

    def build(self) -> BoolWatermarkDeclaration:
        """Build the declaration.

        Raises:
            WatermarkDeclarationError: The settings contradict each other. For example, the watermark is aligned but
                does not wait for all channels.
        """
        return BoolWatermarkDeclaration(self._identifier, self._policy, self._strategy, scope=self._scope)


class FloatWatermarkBuilder(OrderedBuilder[float], WatermarkBuilder[float]):
    """The second step of a declaration with floating-point values."""

    def combine_function_sum(self) -> Self:
        """Combine to the sum of the values of all active channels, rounded once. The result is not forwarded."""
        return self._combined_by(GeneralCombinationFunction.SUM)


class StrWatermarkBuilder(OrderedBuilder[str], WatermarkBuilder[str]):
    """The second step of a declaration with strings as values."""


class DataWatermarkBuilder(OrderedBuilder[V], WatermarkBuilder[V], Generic[V]):
    """The second step of a declaration with instances of a data class as values."""


class VectorWatermarkBuilder(ExtremumBuilder[Mapping[str, int]], WatermarkBuilder[Mapping[str, int]]):
    """The second step of a declaration with vector clocks as values."""


class SetWatermarkBuilder(WatermarkBuilder[Set[T]], Generic[T]):
    """The second step of a declaration with sets as values."""

    def combine_function_union(self) -> Self:
        """Combine to the union of the sets of all channels (the default)."""
        return self._combined_by(GeneralCombinationFunction.UNION)

    def combine_function_intersection(self) -> Self:
        """Combine to the intersection of the sets of all channels that have sent one."""
        return self._combined_by(GeneralCombinationFunction.INTERSECTION)
