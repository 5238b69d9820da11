"""Aggregation step by step: from values through an accumulator to a result (Flink ``AggregateFunction``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dsv2.callables import takes
from dsv2.errors import ConfigurationError, ContractError

__all__ = ("AggregateFunction", "aggregate_of")

IN = TypeVar("IN")
OUT = TypeVar("OUT")
ACC = TypeVar("ACC")
IN_contra = TypeVar("IN_contra", contravariant=True)
OUT_co = TypeVar("OUT_co", covariant=True)


class AggregateFunction(ABC, Generic[IN_contra, ACC, OUT_co]):
    """Subclass it, or give functions to ``aggregate_of``. Holds no values itself: one object serves every key."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """A new accumulator, before the first value."""

    @abstractmethod
    def add(self, value: IN_contra, accumulator: ACC) -> ACC:
        """The accumulator with ``value`` added: the same object changed, or a new one."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT_co:
        """What has been aggregated so far."""

    def merge(self, first: ACC, second: ACC) -> ACC:
        """One accumulator for the values of both; only asked of functions in windows that merge (sessions)."""
        raise ContractError("It is not said how accumulators are merged: define merge, or give aggregate_of merge=...")


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
    """An ``AggregateFunction`` of plain functions, with the parameters of its methods.

    Raises ``ConfigurationError`` for one that does not take them.
    """
    for name, function, parameters in (
        ("create_accumulator", create_accumulator, ()),
        ("add", add, ("value", "accumulator")),
        ("get_result", get_result, ("accumulator",)),
        ("merge", merge, ("accumulator", "accumulator")),
    ):
        if function is not None and not takes(function, len(parameters)):
            raise ConfigurationError(f"aggregate_of: {name} is a callable ({', '.join(parameters)}), not {function!r}.")
    if merge is None:
        return _AggregateOf(create_accumulator, add, get_result)
    return _MergingAggregateOf(create_accumulator, add, get_result, merge)
