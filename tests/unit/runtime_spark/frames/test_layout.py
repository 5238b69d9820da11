"""Slots of a plan: each subtask has its own, and every level fills its partitions evenly.

``tests/spark/test_spark_facts.py`` checks that ``spark_partition`` equals what Spark computes.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.errors import PlanError
from dsv2.functions import OneInputStreamProcessFunction, TwoInputNonBroadcastStreamProcessFunction
from dsv2.graph import OperatorKind, Plan
from dsv2.sinks import CollectSink
from runtime_spark.frames.layout import REPORT_SLOT, Layout, spark_partition


class Pass(OneInputStreamProcessFunction[Any, Any]):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


class Join(TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]):
    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None: ...
    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None: ...


def plan(parallelism: int = 2, middle: int | None = None, sinks: tuple[str, ...] = ("last",)) -> Plan:
    """Two operators side by side, ``middle`` subtasks downstream of one of them, and a join of both.

    ``sinks``: after the last operator, or after the first, before the others are created.
    """
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(parallelism)
    first = env.from_collection([1]).process(Pass()).with_uid("first")
    if "first" in sinks:
        first.to_sink(CollectSink()).with_uid("first sink")
    second = env.from_collection([1]).process(Pass()).with_uid("second")
    between = first.key_by(str).process(Pass()).with_uid("middle").with_parallelism(middle or parallelism)
    chained = between.process(Pass()).with_uid("chained").with_parallelism(middle or parallelism)
    joined = chained.key_by(str).connect_and_process(second.key_by(str), Join()).with_uid("joined")
    if "last" in sinks:
        joined.to_sink(CollectSink()).with_uid("last sink")
    joined.process(Pass())
    return env.build_plan()


def slots_by_uid(a_plan: Plan) -> dict[tuple[str, int], int]:
    return {(a_plan.operators[op].uid, subtask): slot for (op, subtask), slot in Layout.of(a_plan).slots.items()}


def test_level_has_chain_heads_of_equal_depth() -> None:
    a_plan = plan()
    levels = [[a_plan.operators[head].uid for head in level] for level in Layout.of(a_plan).levels]
    assert levels == [["first", "second"], ["middle"], ["joined"]]


def test_every_subtask_of_a_head_or_sink_has_a_slot() -> None:
    assert slots_by_uid(plan(2, middle=3)).keys() == {
        *((uid, subtask) for uid in ("first", "second", "joined", "last sink") for subtask in range(2)),
        *(("middle", subtask) for subtask in range(3)),
    }


@pytest.mark.parametrize("parallelism", [1, 2, 3, 8, 50])
def test_slots_are_unique_and_differ_from_the_report_slot(parallelism: int) -> None:
    layout = Layout.of(plan(parallelism, middle=5))
    slots = list(layout.slots.values())
    assert len(set(slots)) == len(slots)
    assert min(slots) >= 0 > REPORT_SLOT
    assert {layout.slots[address] for address in layout.addresses.values()} == set(slots)
    assert all(layout.addresses[slot] == address for address, slot in layout.slots.items())


@pytest.mark.parametrize(("parallelism", "middle"), [(1, 1), (2, 2), (2, 5), (3, 2), (4, 4), (8, 3), (50, 7)])
def test_levels_are_distributed_evenly_over_partitions(parallelism: int, middle: int) -> None:
    a_plan = plan(parallelism, middle)
    layout = Layout.of(a_plan)
    assert layout.partitions == max(parallelism, middle)
    for level in layout.levels:
        slots = [slot for head in level for slot in layout.slots_of(a_plan.operators[head])]
        load = Counter(spark_partition(slot, layout.partitions) for slot in slots)
        loads = [load[partition] for partition in range(layout.partitions)]
        assert sum(loads) == len(slots)
        assert max(loads) - min(loads) <= 1


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_fewer_partitions_than_subtasks_are_shared_evenly(partitions: int) -> None:
    a_plan = plan(4, 7)
    layout = Layout.of(a_plan, partitions)
    assert layout.partitions == partitions
    for level in layout.levels:
        slots = [slot for head in level for slot in layout.slots_of(a_plan.operators[head])]
        load = Counter(spark_partition(slot, partitions) for slot in slots)
        assert max(load.values()) - min(load.values()) <= 1
        assert len(load) == partitions


def test_sinks_do_not_change_the_slots_of_operators() -> None:
    def of_operators(*sinks: str) -> dict[tuple[str, int], int]:
        return {
            address: slot for address, slot in slots_by_uid(plan(3, sinks=sinks)).items() if "sink" not in address[0]
        }

    assert of_operators("last") == of_operators("first", "last") == of_operators()


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_rows_for_other_levels_are_one_group_in_each_partition(partitions: int) -> None:
    layout = Layout.of(plan(4, 7), partitions)
    groups = layout.passing_groups
    assert [spark_partition(group, partitions) for group in groups] == [*range(partitions)]
    assert layout.addresses.keys().isdisjoint(groups)


def test_equal_plans_have_equal_layouts() -> None:
    assert Layout.of(plan(4, 3)) == Layout.of(plan(4, 3))


def test_plan_without_operators_has_no_level() -> None:
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(3)
    env.from_collection([1]).to_sink(CollectSink())
    a_plan = env.build_plan()
    layout = Layout.of(a_plan)
    assert (layout.levels, layout.partitions) == ((), 1)
    sink = next(operator for operator in a_plan.operators if operator.kind is OperatorKind.SINK)
    assert len(set(layout.slots_of(sink))) == 3


def test_partition_is_computed_by_murmur3() -> None:
    # SELECT hash(1), hash(42)
    assert spark_partition(1, 1 << 31) == -559580957 % (1 << 31)
    assert spark_partition(42, 1 << 31) == 29417773


@pytest.mark.parametrize("slot", [0, 1, 2, 7, -1, 12345, 2**31 - 1, -(2**31)])
def test_partition_is_less_than_the_number_of_partitions(slot: int) -> None:
    assert all(0 <= spark_partition(slot, partitions) < partitions for partitions in range(1, 20))


def test_slots_do_not_depend_on_the_order_of_lines() -> None:
    def slots(*uids: str) -> dict[tuple[str, int], int]:
        env = ExecutionEnvironment.get_instance("local")
        env.set_parallelism(2)
        numbers = env.from_collection([1])
        for uid in uids:
            numbers.key_by(abs).process(lambda record, output, ctx: None).with_uid(uid)
        plan = env.build_plan()
        return {
            (plan.operators[operator].uid, subtask): slot for (operator, subtask), slot in Layout.of(plan).slots.items()
        }

    assert slots("a", "b", "c") == slots("c", "a", "b")


def test_exchange_with_too_many_channels_is_refused() -> None:
    Layout.of(plan(2_000))
    expected = (
        r"\(uid 'first'\) has 2,001 subtasks, and .* \(uid 'middle'\), defined at .*test_layout.py:\d+, has 2,001: "
        r"an exchange between them has 4,004,001 channels"
    )
    with pytest.raises(PlanError, match=expected):
        Layout.of(plan(2_001))
