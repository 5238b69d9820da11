"""Incremental aggregation of values to a result, using an accumulator (Flink ``AggregateFunction``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from dsv2.base.callables import takes
from dsv2.base.type_variables import ACC, IN, OUT, IN_contra, OUT_co
from dsv2.errors import ConfigurationError, ContractError


class AggregateFunction(ABC, Generic[IN_contra, ACC, OUT_co]):
    """Aggregates values incrementally. Subclass it, or use ``aggregate_of``.

    The function itself has no state, because one object is used for every key. (Flink ``AggregateFunction``.)
    """

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Create an empty accumulator."""

    @abstractmethod
    def add(self, value: IN_contra, accumulator: ACC) -> ACC:
        """Add ``value`` to the accumulator. Returns the modified accumulator or a new one."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT_co:
        """The result of the values added so far."""

    def merge(self, first: ACC, second: ACC) -> ACC:
        """Merge two accumulators. Only called for windows that merge (sessions)."""
        raise ContractError("The function cannot merge accumulators. Define merge, or pass merge=... to aggregate_of.")


@dataclass(frozen=True, slots=True)
class _AggregateOf(AggregateFunction[IN, ACC, OUT]):
    create: Callable[[], ACC]
    add_to: Callable[[IN, ACC], ACC]
    result_of: Callable[[ACC], OUT]

    def create_accumulator(self) -> ACC:
        return self.create()

    def add(self, value: IN, accumulator: ACC) -> ACC:
        return self.add_to(value, accumulator)

    def get_result(self, accumulator: ACC) -> OUT:
        return self.result_of(accumulator)


@dataclass(frozen=True, slots=True)
class _MergingAggregateOf(_AggregateOf[IN, ACC, OUT]):
    merge_two: Callable[[ACC, ACC], ACC]

    def merge(self, first: ACC, second: ACC) -> ACC:
        return self.merge_two(first, second)


def aggregate_of(
    create_accumulator: Callable[[], ACC],
    add: Callable[[IN, ACC], ACC],
    get_result: Callable[[ACC], OUT],
    merge: Callable[[ACC, ACC], ACC] | None = None,
) -> AggregateFunction[IN, ACC, OUT]:
    """Create an ``AggregateFunction`` from functions.

    Args:
        create_accumulator: Creates an empty accumulator.
        add: Called with ``(value, accumulator)``. Returns the modified accumulator or a new one.
        get_result: Called with ``(accumulator)``. Returns the result.
        merge: Called with two accumulators. Returns the merged one. Only session windows require it.

    Raises:
        ConfigurationError: A function does not accept these arguments.
    """
    for name, function, parameters in (
        ("create_accumulator", create_accumulator, ()),
        ("add", add, ("value", "accumulator")),
        ("get_result", get_result, ("accumulator",)),
        ("merge", merge, ("accumulator", "accumulator")),
    ):
        if function is not None and not takes(function, len(parameters)):
            raise ConfigurationError(
                f"aggregate_of: {name} must be a callable ({', '.join(parameters)}), not {function!r}."
            )
    if merge is None:
        return _AggregateOf(create_accumulator, add, get_result)
    return _MergingAggregateOf(create_accumulator, add, get_result, merge)
