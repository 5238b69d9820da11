"""Maps a plan to Spark: levels, slots and partitions. Needs no session.

A level is one stateful Spark stage. A slot is the group in which one subtask runs. Spark assigns group ``slot`` to
partition ``pmod(murmur3(slot), partitions)``. Slot numbers are chosen so that each level fills its partitions evenly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import count

from dsv2.errors import PlanError
from dsv2.graph import Operator, OperatorKind, Plan

REPORT_SLOT = -1
"""Rows of this slot carry progress reports of subtasks to the driver."""

GROUP = "group"
"""The column with the result of ``Layout.group_at``."""

_MOST_CHANNELS = 4_000_000  # 2,000 subtasks that send to 2,000; each channel takes about 170 bytes in a micro-batch

_MASK = 0xFFFFFFFF


class StateLayout(Enum):
    """The form in which Spark stores the state of a subtask. Part of the checkpoint. BATCH jobs store none."""

    BLOB = "blob"
    """As one value, which every micro-batch reads and writes as a whole. Best for up to a few megabytes per subtask."""
    MAP = "map"
    """Keyed state as pages in a map. A micro-batch reads and writes only the pages that it needs. For many keys."""


@dataclass(frozen=True)
class Layout:
    """The slots of a plan.

    Attributes:
        partitions: The number of Spark tasks per level.
        levels: For each level, first to last, the ids of the chain heads that run there.
        slots: (operator id, subtask) -> slot, for every chain head and every sink.
        state: How Spark stores the state.
        dataframes: For each DataFrame that records pass through, the operators of Spark with state in it.
    """

    partitions: int
    levels: tuple[tuple[int, ...], ...]
    slots: dict[tuple[int, int], int]
    state: StateLayout = StateLayout.BLOB
    dataframes: tuple[tuple[str, ...], ...] = ()

    @staticmethod
    def of(plan: Plan, partitions: int | None = None, state: StateLayout = StateLayout.BLOB) -> Layout:
        """Compute the layout of ``plan``. Equal plans have equal layouts.

        ``partitions``: Tasks per level. None (default): the highest parallelism of the operators.

        Raises:
            PlanError: An exchange has more channels than the driver can handle.
        """
        _check_channels(plan)
        depth = max(plan.depths.values(), default=0)
        # Sorted by uid, so that reordering the program does not change the slots of the state.
        in_order = sorted(plan.chains, key=lambda head: plan.operators[head].uid)
        levels = tuple(tuple(head for head in in_order if plan.depths[head] == level) for level in range(1, depth + 1))
        heads = [plan.operators[head] for level in levels for head in level]
        if partitions is None:
            partitions = max((operator.parallelism for operator in heads), default=1)
        numbers = _SlotNumbers(partitions)
        slots: dict[tuple[int, int], int] = {}
        for level in levels:
            numbers.begin_level()
            for head in level:
                slots |= numbers.assign(plan.operators[head])
        # Sinks come last, so that adding one does not change the slots of the state.
        numbers.begin_level()
        for operator in plan.operators:
            if operator.kind is OperatorKind.SINK:
                slots |= numbers.assign(operator)
        return Layout(partitions, levels, slots, state)

    @cached_property
    def addresses(self) -> dict[int, tuple[int, int]]:
        """slot -> (operator id, subtask)."""
        return {slot: address for address, slot in self.slots.items()}

    @cached_property
    def passing_groups(self) -> list[int]:
        """For each partition, a group that is no slot, and that Spark assigns to it."""
        groups: dict[int, int] = {}
        for group in count(REPORT_SLOT - 1, -1):
            if len(groups) == self.partitions:
                break
            groups.setdefault(spark_partition(group, self.partitions), group)
        return [groups[partition] for partition in range(self.partitions)]

    def slots_of(self, operator: Operator) -> list[int]:
        """Return the slots of all subtasks of ``operator``."""
        return [self.slots[operator.id, subtask] for subtask in range(operator.parallelism)]

    def group_at(self, level: int) -> str:
        """Return the SQL expression for the group of a row at ``level``.

        Rows for the slots of other levels, which only pass through, are one group in each partition: Spark's work for a
        group takes longer than for its rows.
        """
        heads = set(self.levels[level])
        own = ", ".join(str(slot) for (operator, _), slot in self.slots.items() if operator in heads)
        passing = f"array({', '.join(map(str, self.passing_groups))})[pmod(hash(slot), {self.partitions})]"
        return f"CASE WHEN slot IN ({own}) THEN slot ELSE {passing} END"


def _check_channels(plan: Plan) -> None:
    for edge in plan.edges:
        source, target = plan.operators[edge.source], plan.operators[edge.target]
        channels = target.parallelism * plan.channels_of(edge)
        if channels > _MOST_CHANNELS:
            raise PlanError(
                f"{source} has {source.parallelism:,} subtasks, and {target}, defined at {target.location}, has "
                f"{target.parallelism:,}: an exchange between them has {channels:,} channels, and the driver can keep "
                f"track of {_MOST_CHANNELS:,}. Lower the parallelism of one of them."
            )


class _SlotNumbers:
    """Assigns each small number once, by the partition that it maps to."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._free: list[list[int]] = [[] for _ in range(partitions)]
        self._numbers = self._count()
        self._turn = 0

    def begin_level(self) -> None:
        self._turn = 0

    def assign(self, operator: Operator) -> dict[tuple[int, int], int]:
        slots = {}
        for subtask in range(operator.parallelism):
            slots[operator.id, subtask] = self._take(self._turn % self._partitions)
            self._turn += 1
        return slots

    def _take(self, partition: int) -> int:
        while not self._free[partition]:
            number = next(self._numbers)
            self._free[spark_partition(number, self._partitions)].append(number)
        return self._free[partition].pop(0)

    def _count(self) -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1


def spark_partition(slot: int, partitions: int) -> int:
    """Return Spark's partition of an integer grouping key: murmur3 with seed 42, like ``hash(slot)`` in SQL."""
    k = _rotate(slot * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    h = (_rotate(42 ^ k, 13) * 5 + 0xE6546B64) & _MASK
    h ^= 4  # the length of an int
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    signed = h - (1 << 32) if h >> 31 else h
    return signed % partitions


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
