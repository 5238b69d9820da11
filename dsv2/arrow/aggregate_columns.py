"""The aggregates on columns: accumulators as columns, with the same results as value by value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsv2.aggregates import (
    Aggregate,
    ApproxCountDistinct,
    ArgMax,
    Collect,
    Count,
    CountDistinct,
    Mean,
    StdDev,
    Variance,
)
from dsv2.aggregates.result_field import Fold
from dsv2.arrow.casts import array_of
from dsv2.arrow.encoding import Numbers
from dsv2.arrow.keyed.folding import Groups, check_how, fold, running
from dsv2.arrow.segments import first_at_least
from dsv2.errors import ConfigurationError

PART = TypeVar("PART", bound=Aggregate)
Arrays: TypeAlias = Sequence[pa.Array]

_FLOATS = 1 << 53
"""All whole numbers up to this one are floats."""


class AggregateColumns(ABC, Generic[PART]):
    """An aggregate on columns.

    Args:
        part: The aggregate.
        types: The types of its accumulators.
        result_type: The type of its result.
    """

    def __init__(self, part: PART, types: Sequence[pa.DataType], result_type: pa.DataType) -> None:
        self.part = part
        self.types = types
        self.result_type = result_type

    @abstractmethod
    def found_type(self, inputs: Sequence[pa.DataType]) -> pa.DataType:
        """Return the type of the result for inputs of these types.

        Raises:
            ConfigurationError: They cannot be aggregated in columns.
        """

    @abstractmethod
    def fold(self, current: Arrays, inputs: Arrays, groups: Groups) -> Arrays:
        """Return the accumulators of each group after its rows.

        Args:
            current: Those before; nulls if there are none.
            inputs: The values. Rows with a null are left out.
            groups: The group of each row.
        """

    @abstractmethod
    def running(self, current: Arrays, inputs: Arrays, groups: Groups) -> tuple[pa.Array, Arrays]:
        """Return the result after each row, and the accumulators of each group, see ``fold``."""

    @abstractmethod
    def results(self, accumulators: Arrays) -> pa.Array:
        """Return the results of accumulators."""


class FoldColumns(AggregateColumns[Fold]):
    """An aggregate that is its only accumulator. A count adds up ones and zeros."""

    def found_type(self, inputs: Sequence[pa.DataType]) -> pa.DataType:
        kind = pa.int64() if isinstance(self.part, Count) else inputs[0]
        check_how(self.part.how, self.part.field, kind)
        return kind

    def fold(self, current: Arrays, inputs: Arrays, groups: Groups) -> Arrays:
        return [fold(self.part.how, current[0], inputs[0], groups)]

    def running(self, current: Arrays, inputs: Arrays, groups: Groups) -> tuple[pa.Array, Arrays]:
        by_row, final = running(self.part.how, current[0], inputs[0], groups)
        return by_row, [final]

    def results(self, accumulators: Arrays) -> pa.Array:
        return accumulators[0]


class SumColumns(AggregateColumns[PART], Generic[PART]):
    """An aggregate whose accumulators are sums."""

    @abstractmethod
    def added(self, current: Arrays, inputs: Arrays, groups: Groups) -> Arrays:
        """Return for each accumulator what is added to it."""

    def found_type(self, inputs: Sequence[pa.DataType]) -> pa.DataType:
        check_how("sum", self.part.field, inputs[0])
        return pa.float64()

    def fold(self, current: Arrays, inputs: Arrays, groups: Groups) -> Arrays:
        added = self.added(current, inputs, groups)
        return [fold("sum", one, values, groups) for one, values in zip(current, added, strict=True)]

    def running(self, current: Arrays, inputs: Arrays, groups: Groups) -> tuple[pa.Array, Arrays]:
        added = self.added(current, inputs, groups)
        found = [running("sum", one, values, groups) for one, values in zip(current, added, strict=True)]
        by_row, final = zip(*found, strict=True)
        return self.results(by_row), final


class MeanColumns(SumColumns[Mean]):
    """``Mean``."""

    def added(self, current: Arrays, inputs: Arrays, groups: Groups) -> Arrays:
        return inputs[0], ones(inputs[0])

    def results(self, accumulators: Arrays) -> pa.Array:
        sums, counts = accumulators
        numbers = sums.fill_null(0).to_numpy(zero_copy_only=False)
        is_simple = pa.types.is_float64(sums.type)
        if pa.types.is_int64(sums.type):  # larger ones are not floats: they would be rounded twice
            is_simple = bool(((numbers > -_FLOATS) & (numbers < _FLOATS)).all())
        if not is_simple:
            means = [Mean.of(total, count) for total, count in zip(sums.to_pylist(), counts.to_pylist(), strict=True)]
            return pa.array(means, pa.float64())
        missing = sums.is_null().to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore", divide="ignore"):
            return pa.array(numbers / counts.fill_null(0).to_numpy(), pa.float64(), mask=missing)


class VarianceColumns(AggregateColumns[Variance]):
    """``Variance`` and ``StdDev``. The first value of a group, which is subtracted from all, is found at once."""

    def found_type(self, inputs: Sequence[pa.DataType]) -> pa.DataType:
        if not (pa.types.is_int64(inputs[0]) or pa.types.is_float64(inputs[0])):
            raise ConfigurationError(f"{self.part.field!r} is of type {inputs[0]}, which is no number in columns.")
        return pa.float64()

    def fold(self, current: Arrays, inputs: Arrays, groups: Groups) -> Arrays:
        first, *added = self._added(current, inputs, groups)
        sums = (current[0], *current[2:])
        count, *others = (fold("sum", one, values, groups) for one, values in zip(sums, added, strict=True))
        return count, first, *others

    def running(self, current: Arrays, inputs: Arrays, groups: Groups) -> tuple[pa.Array, Arrays]:
        first, *added = self._added(current, inputs, groups)
        sums = (current[0], *current[2:])
        found = [running("sum", one, values, groups) for one, values in zip(sums, added, strict=True)]
        (counts, *by_row), (count, *others) = zip(*found, strict=True)
        return self.results((counts, first, *by_row)), (count, first, *others)

    def _added(self, current: Arrays, inputs: Arrays, groups: Groups) -> Arrays:
        """The first value of each group, and the ones, differences and squares that are added."""
        values = inputs[0].cast(pa.float64(), safe=False)
        first = fold("first", current[1], values, groups)
        differences = pc.subtract(values, first.take(pa.array(groups.places)))
        return first, ones(values), differences, pc.multiply(differences, differences)

    @np.errstate(invalid="ignore", divide="ignore", over="ignore")
    def results(self, accumulators: Arrays) -> pa.Array:
        counts, _, *sums = accumulators
        count = counts.fill_null(0).to_numpy()
        total, squares = (one.fill_null(0).to_numpy() for one in sums)
        divisor = count if self.part.population else count - 1
        found = (squares - total * total / count) / divisor
        found[found < 0] = 0
        if isinstance(self.part, StdDev):
            found = np.sqrt(found)
        return pa.array(found, pa.float64(), mask=divisor < 1)


class ArgColumns(AggregateColumns[ArgMax]):
    """``ArgMax`` and ``ArgMin``."""

    def found_type(self, inputs: Sequence[pa.DataType]) -> pa.DataType:
        check_how(self.part.extreme.how, self.part.by, inputs[1])
        return inputs[0]

    def fold(self, current: Arrays, inputs: Arrays, groups: Groups) -> Arrays:
        return self.running(current, inputs, groups)[1]

    def running(self, current: Arrays, inputs: Arrays, groups: Groups) -> tuple[pa.Array, Arrays]:
        values, by = inputs
        after, final = running(self.part.extreme.how, current[1], by, groups)
        order, starts = groups.order, groups.starts
        previous = np.empty(len(order), np.int64)  # the row before of the same group, or the group
        previous[order[1:]] = order[:-1]
        some = np.flatnonzero(np.diff(starts))
        previous[order[starts[some]]] = len(order) + some
        before = pa.concat_arrays([after, current[1]]).take(pa.array(previous))
        is_better = _as_numbers(by.is_valid()) & ~_equal(before, after)
        by_row, chosen = running("last", current[0], only(values, is_better), groups)
        return by_row, (chosen, final)

    def results(self, accumulators: Arrays) -> pa.Array:
        return accumulators[0]


class LoopColumns(AggregateColumns[PART], Generic[PART]):
    """An aggregate that is computed value by value."""

    def found_type(self, inputs: Sequence[pa.DataType]) -> pa.DataType:
        return self.result_type

    def fold(self, current: Arrays, inputs: Arrays, groups: Groups) -> Arrays:
        return self._looped(current, inputs[0].to_pylist(), groups.places, None)

    def running(self, current: Arrays, inputs: Arrays, groups: Groups) -> tuple[pa.Array, Arrays]:
        by_row: list[Any] = []
        final = self._looped(current, inputs[0].to_pylist(), groups.places, by_row)
        return self._as_array(by_row, self.result_type), final

    def results(self, accumulators: Arrays) -> pa.Array:
        return self._as_array([self.part.result(one) for one in self._rows(accumulators)], self.result_type)

    def _looped(self, current: Arrays, values: Iterable[Any], places: Numbers, by_row: list[Any] | None) -> Arrays:
        found, part = self._rows(current), self.part
        for place, value in zip(places.tolist(), values, strict=True):
            if value is not None:
                found[place] = part.add(found[place], value)
            if by_row is not None:
                by_row.append(part.result(found[place]))
        columns: Iterable[Sequence[Any]] = zip(*found, strict=True) if found else [()] * len(self.types)
        return [self._as_array(column, kind) for column, kind in zip(columns, self.types, strict=True)]

    def _rows(self, accumulators: Arrays) -> list[Sequence[Any]]:
        rows: Iterable[Sequence[Any]] = zip(*(column.to_pylist() for column in accumulators), strict=True)
        return list(rows)

    def _as_array(self, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        return array_of(values, kind, str(self.part))


class CollectColumns(LoopColumns[Collect]):
    """``Collect``. The lists after each row are made one by one, because all values are copied anyway."""

    def found_type(self, inputs: Sequence[pa.DataType]) -> pa.DataType:
        return pa.list_(inputs[0])

    def fold(self, current: Arrays, inputs: Arrays, groups: Groups) -> Arrays:
        values, owners, _ = _all_values(current[0], inputs[0], groups)
        order = np.argsort(owners, kind="stable")
        if self.part.limit is not None:
            starts = np.searchsorted(owners[order], np.arange(groups.count))
            order = order[np.arange(len(order)) - starts[owners[order]] < self.part.limit]
        return [_lists(values.take(pa.array(order)), np.bincount(owners[order], minlength=groups.count))]


class DistinctColumns(AggregateColumns[CountDistinct]):
    """``CountDistinct``."""

    def found_type(self, inputs: Sequence[pa.DataType]) -> pa.DataType:
        if pa.types.is_list(inputs[0]):
            raise ConfigurationError(f"{self.part.field!r} is of type {inputs[0]}, which has no order in columns.")
        return pa.int64()

    def fold(self, current: Arrays, inputs: Arrays, groups: Groups) -> Arrays:
        values, owners = _different(inputs[0], groups.places)
        return [self._added(current[0], values, Groups(owners, groups.count))[0]]

    def running(self, current: Arrays, inputs: Arrays, groups: Groups) -> tuple[pa.Array, Arrays]:
        after, is_new = self._added(current[0], inputs[0], groups)
        by_row, _ = running("sum", _lengths(current[0]), pa.array(is_new.astype(np.int64)), groups)
        return by_row, [after]

    def results(self, accumulators: Arrays) -> pa.Array:
        return _lengths(accumulators[0])

    @staticmethod
    def _added(current: pa.ListArray, values: pa.Array, groups: Groups) -> tuple[pa.ListArray, Numbers]:
        """The distinct values of each group in their order, and which rows have a new one."""
        if pa.types.is_int64(values.type):
            return _added_numbers(current, values, groups)
        known, owners, rows = _all_values(current, values, groups)
        different, place, firsts = _distinct(known, owners)
        is_new = np.zeros(len(values), np.bool_)
        added = firsts - (len(known) - len(rows))
        is_new[rows[added[added >= 0]]] = True
        return _lists(different, np.bincount(place, minlength=groups.count)), is_new


class SketchColumns(LoopColumns[ApproxCountDistinct]):
    """``ApproxCountDistinct``. A window gets each value of a batch once."""

    def found_type(self, inputs: Sequence[pa.DataType]) -> pa.DataType:
        if pa.types.is_list(inputs[0]):
            raise ConfigurationError(f"{self.part.field!r} is of type {inputs[0]}, which has no hash.")
        return pa.int64()

    def fold(self, current: Arrays, inputs: Arrays, groups: Groups) -> Arrays:
        rows = np.flatnonzero(_as_numbers(inputs[0].is_valid()))
        values, owners, _ = _distinct(inputs[0].take(pa.array(rows)), groups.places[rows])
        return self._looped(current, values.to_pylist(), owners, None)


_KINDS: dict[Any, type[AggregateColumns[Any]]] = {
    Collect: CollectColumns,
    Fold: FoldColumns,
    Mean: MeanColumns,
    Variance: VarianceColumns,
    ArgMax: ArgColumns,
    CountDistinct: DistinctColumns,
    ApproxCountDistinct: SketchColumns,
    Aggregate: LoopColumns,
}


def columns_of(part: Aggregate, types: Sequence[pa.DataType], result_type: pa.DataType) -> AggregateColumns[Any]:
    """Return an aggregate on columns, see ``AggregateColumns``."""
    found = next(_KINDS[kind] for kind in type(part).__mro__ if kind in _KINDS)
    return found(part, types, result_type)


def inputs_of(part: Aggregate, columns: Arrays, rows: int, chosen: Numbers | None) -> Arrays:
    """Return the inputs of an aggregate. Rows that are left out are null in all of them, and a count of 0.

    Args:
        part: The aggregate.
        columns: The columns that it reads.
        rows: The number of rows.
        chosen: The rows for which its filter is true; None: all.
    """
    if len(columns) > 1:
        for column in columns:
            if column.null_count:
                valid = _as_numbers(column.is_valid())
                chosen = valid if chosen is None else chosen & valid
    if isinstance(part, Count):
        counted = ones(columns[0]) if columns else pa.array(np.ones(rows, np.int64))
        return [counted if chosen is None else pa.array(np.where(chosen, counted.to_numpy(), 0))]
    return columns if chosen is None or chosen.all() else [only(column, chosen) for column in columns]


def ones(column: pa.Array) -> pa.Array:
    """Return 1 for each value, and 0 for each null."""
    if not column.null_count:
        return pa.array(np.ones(len(column), np.int64))
    return pa.array(_as_numbers(column.is_valid()).astype(np.int64))


def only(values: pa.Array, chosen: Numbers) -> pa.Array:
    """Return the values where ``chosen`` is true, and null elsewhere."""
    return pc.if_else(pa.array(chosen), values, pa.scalar(None, values.type))


def _as_numbers(column: pa.BooleanArray) -> Numbers:
    found: Numbers = column.to_numpy(zero_copy_only=False)
    return found


def _equal(first: pa.Array, second: pa.Array) -> Numbers:
    """Return which values are equal. NaN equals NaN, and null nothing."""
    same = _as_numbers(pc.equal(first, second).fill_null(False))
    if pa.types.is_float64(first.type):
        same |= _as_numbers(pc.and_(pc.is_nan(first), pc.is_nan(second)).fill_null(False))
    return same


def _lengths(lists: pa.ListArray) -> pa.Int64Array:
    return pc.list_value_length(lists).fill_null(0).cast(pa.int64())


def _all_values(current: pa.ListArray, values: pa.Array, groups: Groups) -> tuple[pa.Array, Numbers, Numbers]:
    """The values of lists and rows, the group of each, and the rows that have one."""
    rows = np.flatnonzero(_as_numbers(values.is_valid()))
    owners = np.repeat(np.arange(groups.count), _lengths(current).to_numpy())
    together = pa.concat_arrays([current.flatten(), values.take(pa.array(rows))])
    return together, np.concatenate([owners, groups.places[rows]]), rows


def _different(values: pa.Array, owners: Numbers) -> tuple[pa.Array, Numbers]:
    """The different values of each owner, in any order, and their owners. Null is none."""
    coded = values.dictionary_encode()
    count = len(coded.dictionary)
    pairs = pc.unique(pc.add(coded.indices.cast(pa.int64()), pa.array(owners * count))).drop_null().to_numpy()
    return coded.dictionary.take(pa.array(pairs % max(count, 1))), pairs // max(count, 1)


def _distinct(values: pa.Array, owners: Numbers) -> tuple[pa.Array, Numbers, Numbers]:
    """The distinct values of each owner in their order, their owners, and the place of the first of each."""
    if pa.types.is_float64(values.type):
        values = pc.add(values, 0.0)  # -0.0 is 0.0
    coded = values.dictionary_encode()
    order = pc.array_sort_indices(coded.dictionary)  # NaN is last
    ranks = np.empty(len(order), np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    pairs, firsts = np.unique(owners * len(order) + ranks[coded.indices.to_numpy()], return_index=True)
    count = max(len(order), 1)
    return coded.dictionary.take(order).take(pa.array(pairs % count)), pairs // count, firsts


def _added_numbers(current: pa.ListArray, values: pa.Array, groups: Groups) -> tuple[pa.ListArray, Numbers]:
    """``DistinctColumns._added`` of whole numbers: those known are searched, not sorted again."""
    rows = np.flatnonzero(_as_numbers(values.is_valid()))
    numbers, owners = values.fill_null(0).to_numpy()[rows], groups.places[rows]
    order = np.lexsort((numbers, owners))
    rows, numbers, owners = rows[order], numbers[order], owners[order]
    differs = np.ones(len(rows), np.bool_)
    differs[1:] = (numbers[1:] != numbers[:-1]) | (owners[1:] != owners[:-1])
    rows, numbers, owners = rows[differs], numbers[differs], owners[differs]
    known, sizes = current.flatten().to_numpy(), _lengths(current).to_numpy()
    ends = np.cumsum(sizes)
    places = first_at_least(known, (ends - sizes)[owners], ends[owners], numbers)
    added = places == ends[owners]
    added[~added] = known[places[~added]] != numbers[~added]
    is_new = np.zeros(len(values), np.bool_)
    is_new[rows[added]] = True
    if not added.any():
        return current, is_new
    together = np.insert(known, places[added], numbers[added])
    return _lists(pa.array(together), sizes + np.bincount(owners[added], minlength=groups.count)), is_new


def _lists(values: pa.Array, sizes: Numbers) -> pa.ListArray:
    """Lists with these sizes, null if they have no values."""
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(sizes == 0))
