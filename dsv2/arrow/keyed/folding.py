"""Folds the values of a batch into one value for each group, with the same results as one value after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsv2.aggregates.result_field import added
from dsv2.arrow.casts import array_of
from dsv2.arrow.encoding import Numbers
from dsv2.errors import ConfigurationError, SchemaError

HOWS: Final = ("sum", "min", "max", "first", "last")

_INT64 = np.iinfo(np.int64)
_LAST_CHOICE = {
    ("min", True): _INT64.max,
    ("max", True): _INT64.min,
    ("min", False): float("inf"),
    ("max", False): float("-inf"),
}
"""The value that every other one beats, by aggregation and whether the values are whole numbers."""
_SHORT = 16
"""Groups up to this length are added up side by side, longer ones one by one."""

_Find: TypeAlias = Callable[[Numbers, Numbers], Numbers]


class Groups:
    """The group of each value.

    Args:
        places: The number of the group of each value.
        count: The number of groups.
    """

    def __init__(self, places: Numbers, count: int) -> None:
        self.places = places
        self.count = count
        self._order: Numbers | None = None

    @property
    def order(self) -> Numbers:
        """The values in order of their groups. Within a group the order stays."""
        if self._order is None:
            small = self.places.astype(np.uint16) if self.count <= 1 << 16 else self.places
            self._order = np.argsort(small, kind="stable")
        return self._order

    @property
    def starts(self) -> Numbers:
        """The place in ``order`` at which each group starts, and the number of values."""
        sizes = np.bincount(self.places, minlength=self.count)
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


FoldStep: TypeAlias = Callable[[Sequence[pa.Array], Groups], Sequence[pa.Array]]
"""Returns the columns of the values of groups after their rows. Gets those before, null for a group without a value."""


def check_how(how: str, name: str, kind: pa.DataType) -> None:
    """Check that a column can be aggregated.

    Raises:
        ConfigurationError: There is no such aggregation, or not for the type.
    """
    if how not in HOWS:
        raise ConfigurationError(f"{name!r} cannot be aggregated with {how!r}. Use {', '.join(map(repr, HOWS))}.")
    summable = pa.types.is_int64(kind) or pa.types.is_float64(kind) or pa.types.is_decimal(kind)
    if (how == "sum" and not summable) or (how in ("min", "max") and pa.types.is_list(kind)):
        raise ConfigurationError(f"{name!r} is of type {kind}, which has no {how}.")


@np.errstate(invalid="ignore", over="ignore")
def fold(how: str, current: pa.Array, values: pa.Array, groups: Groups) -> pa.Array:
    """Return the new value of each group. Nulls count as absent.

    Args:
        how: One of ``HOWS``.
        current: The value of each group.
        values: The values to add, of the same type.
        groups: Their groups.

    Raises:
        SchemaError: A sum does not fit 64 bits, or a column of decimals.
    """
    if how in ("first", "last"):
        return _chosen(how, current, values, groups)
    if how == "sum" and pa.types.is_decimal(current.type):
        return _decimal_sums(current, values, groups)
    places = groups.places
    if how == "sum":
        total, is_present, added, of = _start(current, values, places, _nothing(current.type))
        if pa.types.is_int64(current.type) and not fits_in_sum(added, total):
            return _exact_sums(total, is_present, added, of)
        np.add.at(total, of, added)
        return _masked(total, is_present, current.type)

    def find(first: Numbers, later: Numbers) -> Numbers:
        (np.minimum if how == "min" else np.maximum).at(first, places, later)
        return first

    present = np.array(current.is_valid().to_numpy(zero_copy_only=False))
    present[places[values.is_valid().to_numpy(zero_copy_only=False)]] = True
    return _extremes(how, current, values, find, present)


@np.errstate(invalid="ignore", over="ignore")
def running(how: str, current: pa.Array, values: pa.Array, groups: Groups) -> tuple[pa.Array, pa.Array]:
    """Return the value of its group after each value, and the new value of each group, see ``fold``."""
    order, starts = groups.order, groups.starts
    sizes = np.diff(starts)
    after = _after(how, current, values.take(pa.array(order)), starts, sizes)
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    last = np.where(sizes > 0, starts[1:] - 1, 0)
    final = after.take(pa.array(last, mask=sizes == 0)) if len(after) else current
    if not sizes.all():
        final = pc.if_else(pa.array(sizes > 0), final, current)
    return after.take(pa.array(back)), final


def _after(how: str, current: pa.Array, values: pa.Array, starts: Numbers, sizes: Numbers) -> pa.Array:
    """The values of ``running``, in the order of the groups."""
    if how == "last":
        return _last_after(current, values, starts, sizes)
    if how == "first":
        return _first_after(current, values, starts, sizes)
    if how == "sum" and pa.types.is_decimal(current.type):
        return _decimals_after(current, values, sizes)
    of = np.repeat(np.arange(len(sizes)), sizes)
    if how == "sum":
        total, _, added, _ = _start(current, values, of, _nothing(current.type), keep=True)
        seen = _seen(current, values, starts, sizes)
        if pa.types.is_float64(current.type):
            return _masked(_float_sums(total, added, starts, sizes), seen, current.type)
        if not fits_in_sum(added, total):
            return _exact_after(total, added, seen, sizes)
        sums = np.cumsum(added)
        before = np.where(starts[:-1] > 0, sums[starts[:-1] - 1] if len(sums) else 0, 0)
        return _masked(sums + np.repeat(total - before, sizes), seen, current.type)
    seen = _seen(current, values, starts, sizes)

    def find(first: Numbers, later: Numbers) -> Numbers:
        combine = np.minimum if how == "min" else np.maximum
        found = later.copy()
        heads = starts[:-1][sizes > 0]
        found[heads] = combine(found[heads], first[sizes > 0])
        within = np.arange(len(found)) - np.repeat(starts[:-1], sizes)
        step, longest = 1, int(sizes.max(initial=0))
        while step < longest:
            places = np.flatnonzero(within >= step)
            found[places] = combine(found[places], found[places - step])
            step *= 2
        return found

    return _extremes(how, current, values, find, seen)


def _nothing(kind: pa.DataType) -> float:
    """Return the neutral element of addition. 0.0 would change -0.0."""
    return -0.0 if pa.types.is_float64(kind) else 0


def _start(
    current: pa.Array, values: pa.Array, places: Numbers, absent: Any, *, keep: bool = False
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """The current numbers, which groups have a value, the added numbers and their groups.

    Null is ``absent``; ``keep``: also among the added numbers, otherwise they are left out.
    """
    total, is_present = _numbers(current, absent)
    added, valid = _numbers(values, absent)
    if not valid.all() and not keep:
        added, places = added[valid], places[valid]
        is_present[places] = True
    else:
        is_present[places[valid]] = True
    return total, is_present, added, places


def _numbers(values: pa.Array, absent: Any) -> tuple[Numbers, Numbers]:
    if not values.null_count:
        return np.array(values.to_numpy(zero_copy_only=False)), np.ones(len(values), np.bool_)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    return np.array(values.fill_null(absent).to_numpy(zero_copy_only=False)), np.array(valid)


def _masked(values: Numbers, valid: Numbers, kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind, mask=None if valid.all() else ~valid)


def fits_in_sum(added: Numbers, total: Numbers | None = None) -> bool:
    """Return whether no sum of ``added`` numbers, beginning with one of ``total``, can exceed 64 bits."""
    greatest = 0.0 if total is None else float(np.abs(total.astype(np.float64)).max(initial=0))
    return greatest + float(np.abs(added.astype(np.float64)).sum()) < 2.0**62


def _sum_in_64_bits(first: int, second: int) -> int:
    total = first + second
    if not _INT64.min <= total <= _INT64.max:
        raise SchemaError(f"A sum exceeds 64 bits: {first} + {second}.")
    return total


def _exact_sums(total: Numbers, is_present: Numbers, added: Numbers, places: Numbers) -> pa.Array:
    sums: list[int] = total.tolist()
    for place, number in zip(places.tolist(), added.tolist(), strict=True):
        sums[place] = _sum_in_64_bits(sums[place], number)
    return _masked(np.array(sums, np.int64), is_present, pa.int64())


def _exact_after(total: Numbers, added: Numbers, seen: Numbers, sizes: Numbers) -> pa.Array:
    found, numbers = [], iter(added.tolist())
    for first, size in zip(total.tolist(), sizes.tolist(), strict=True):
        for _ in range(size):
            first = _sum_in_64_bits(first, next(numbers))
            found.append(first)
    return _masked(np.array(found, np.int64), seen, pa.int64())


def _decimal_sums(current: pa.Array, values: pa.Array, groups: Groups) -> pa.Array:
    sums = current.to_pylist()
    for place, number in zip(groups.places.tolist(), values.to_pylist(), strict=True):
        if number is not None:
            sums[place] = number if sums[place] is None else added(sums[place], number)
    return array_of(sums, current.type, "A sum")


def _decimals_after(current: pa.Array, values: pa.Array, sizes: Numbers) -> pa.Array:
    found, numbers = [], iter(values.to_pylist())
    for first, size in zip(current.to_pylist(), sizes.tolist(), strict=True):
        for _ in range(size):
            number = next(numbers)
            first = first if number is None else number if first is None else added(first, number)
            found.append(first)
    return array_of(found, current.type, "A sum")


def _float_sums(total: Numbers, added: Numbers, starts: Numbers, sizes: Numbers) -> Numbers:
    """Running sums. Floats are added in their order, because another order has other results."""
    found = added.copy()
    heads = starts[:-1]
    some = np.flatnonzero(sizes)
    found[heads[some]] += total[some]
    short = np.flatnonzero((sizes > 1) & (sizes <= _SHORT))
    for step in range(1, int(sizes[short].max(initial=0))):
        short = short[sizes[short] > step]
        places = heads[short] + step
        found[places] = found[places - 1] + found[places]
    for group in np.flatnonzero(sizes > _SHORT).tolist():
        own = slice(starts[group], starts[group + 1])
        found[own] = np.cumsum(found[own])
    return found


def _seen(current: pa.Array, values: pa.Array, starts: Numbers, sizes: Numbers) -> Numbers:
    """Return for each value whether its group has had one, up to this one."""
    if not current.null_count and not values.null_count:
        return np.ones(len(values), np.bool_)
    before = np.repeat(current.is_valid().to_numpy(zero_copy_only=False), sizes)
    found: Numbers = before | (_last_valid(values) >= np.repeat(starts[:-1], sizes))
    return found


def _last_valid(values: pa.Array) -> Numbers:
    """The place of the last value that is not null, up to each one; -1 if there is none."""
    places = np.arange(len(values))
    if values.null_count:
        places = np.where(values.is_valid().to_numpy(zero_copy_only=False), places, -1)
    found: Numbers = np.maximum.accumulate(places) if len(places) else places
    return found


def _last_after(current: pa.Array, values: pa.Array, starts: Numbers, sizes: Numbers) -> pa.Array:
    last = _last_valid(values)
    own = last >= np.repeat(starts[:-1], sizes)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    return pa.concat_arrays([values, current]).take(pa.array(np.where(own, last, len(values) + groups)))


def _first_after(current: pa.Array, values: pa.Array, starts: Numbers, sizes: Numbers) -> pa.Array:
    count = len(values)
    places = np.arange(count)
    valid = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    firsts = np.append(valid, count)[np.searchsorted(valid, starts[:-1])]  # the first valid one from each start on
    first = np.repeat(firsts, sizes)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    has = np.repeat(current.is_valid().to_numpy(zero_copy_only=False), sizes)
    return pa.concat_arrays([values, current]).take(pa.array(np.where(~has & (first <= places), first, count + groups)))


def _chosen(how: str, current: pa.Array, values: pa.Array, groups: Groups) -> pa.Array:
    places, count = groups.places, len(values)
    rows = np.arange(count)
    if values.null_count:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        rows, places = rows[valid], places[valid]
    chosen = count + np.arange(groups.count)
    if how == "last":
        chosen[places] = rows  # numpy assigns the last one of a place that is repeated
    else:
        firsts = chosen.copy()
        firsts[places[::-1]] = rows[::-1]
        chosen = np.where(current.is_valid().to_numpy(zero_copy_only=False), chosen, firsts)
    return pa.concat_arrays([values, current]).take(pa.array(chosen))


def _extremes(how: str, current: pa.Array, values: pa.Array, find: _Find, seen: Numbers) -> pa.Array:
    """Call ``find`` with numbers that are ordered like the values. Return the values that it finds."""
    kind = current.type
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        current, values = (_as_numbers(column) for column in (current, values))
        found = _extremes(how, current, values, find, seen)
        return (found.cast(pa.int32()) if pa.types.is_date32(kind) else found).cast(kind)
    if pa.types.is_int64(kind) or pa.types.is_float64(kind):
        absent = _LAST_CHOICE[how, pa.types.is_int64(kind)]
        return _masked(find(_numbers(current, absent)[0], _numbers(values, absent)[0]), seen, kind)
    both = pa.concat_arrays([current, values])
    order = pc.sort_indices(both)  # nulls at the end
    ranks = np.empty(len(both), np.int64)
    ranks[order.to_numpy()] = np.arange(1, len(both) + 1)
    if how == "max" and both.null_count:
        ranks[both.is_null().to_numpy(zero_copy_only=False)] = 0
    ordered = pa.concat_arrays([pa.nulls(1, kind), both.take(order)])
    return ordered.take(pa.array(find(ranks[: len(current)], ranks[len(current) :])))


def _as_numbers(column: pa.Array) -> pa.Array:
    return (column.cast(pa.int32()) if pa.types.is_date32(column.type) else column).cast(pa.int64())
