"""The state of an operator's subtasks in a program with another parallelism."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from dsv2.checkpoint.description import describe
from dsv2.errors import IncompatibleCheckpointError
from dsv2.extension.window import OneInputWindowStreamProcessFunction, WindowStrategy
from dsv2.extension.window.process_functions import windowed
from dsv2.functions import OneInputStreamProcessFunction, TwoInputNonBroadcastStreamProcessFunction
from dsv2.graph import Exchange, Plan
from dsv2.runtime.exchange.control_log import END, STATUS, WATERMARK
from dsv2.runtime.operator.time_sender import SentBefore
from dsv2.runtime.rescale import InputChange, ProgramSuccession, Senders, changes
from dsv2.runtime.rescale.fields import rescaled_fields
from dsv2.runtime.rescale.operator_states import event_time, input_status, sent_time
from dsv2.runtime.sources.offsets import NOTHING_SENT
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource
from dsv2.watermark.event_time import LONG_MIN
from tests.support import job_context, local_environment, operator_named


class Nothing(OneInputStreamProcessFunction[int, int]):
    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(record)


class Topics(Nothing):
    """Keeps data by key in a field."""

    keyed_fields = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[int, int] = defaultdict(int)
        self.limit = 1


class Balances(Nothing):
    """Divides a number."""

    def __init__(self) -> None:
        self.total = 0

    def redistribute_fields(self, parts: Sequence[dict[str, Any]], parallelism: int) -> Any:
        total = sum(part.get("total", 0) for part in parts)
        return [{"total": total // parallelism + (index < total % parallelism)} for index in range(parallelism)]


class Custom(Nothing):
    def __init__(self) -> None:
        self.seen: list[int] = []

    def __getstate__(self) -> Any:
        return self.seen

    def __setstate__(self, state: Any) -> None:
        self.seen = state

    @classmethod
    def redistribute_fields(cls, parts: Sequence[list[int]], parallelism: int) -> Any:
        everything = [number for part in parts for number in part]
        return [everything[index::parallelism] for index in range(parallelism)]


class Unmovable(Nothing):
    """Decides what is checkpointed, but not how it is redistributed."""

    def __getstate__(self) -> Any:
        return None


class KeyedUnmovable(Unmovable):
    keyed_fields = ("counts",)


class Misnamed(Nothing):
    keyed_fields = "counts"


class Windowed(OneInputWindowStreamProcessFunction[int, int]):
    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        pass


def plan_of(function: Any, parallelism: int, senders: int = 1, uid: str = "in") -> Plan:
    env = local_environment()
    stream: Any = env.from_collection(list[int](), uid).with_parallelism(senders)
    stream = stream.key_by(lambda number: number).process(function).with_uid("f").with_parallelism(parallelism)
    stream.process(Nothing()).with_uid("g").with_parallelism(2).to_sink(CollectSink()).with_uid("out")
    return env.build_plan()


def redistributed(function: Any, parts: Sequence[Any], parallelism: int) -> list[Any]:
    """The fields of the new subtasks, from those of the old ones."""
    plan = plan_of(function, parallelism)
    codec = job_context(plan).codec
    custom = isinstance(function, Custom | Unmovable)
    old = [codec.dumps(part if custom else (part, [])) for part in parts]
    new = [codec.loads(part, "New") for part in rescaled_fields(operator_named(plan, "f"), old, codec)]
    return new if custom else [fields for fields, _ in new]


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("after", [1, 3, 8])
def test_keyed_fields_go_to_the_owners_of_their_keys(before: int, after: int) -> None:
    others = {"limit": 7} if before > 1 else {}
    parts: list[dict[str, Any]] = [{"counts": defaultdict(int), **others} for _ in range(before)]
    for key in range(20):
        parts[subtask_of(key, 128, before)]["counts"][key] = key * 10
    new = redistributed(Topics(), parts, after)
    assert {key: n for fields in new for key, n in fields["counts"].items()} == {key: key * 10 for key in range(20)}
    for index, fields in enumerate(new):
        assert all(subtask_of(key, 128, after) == index for key in fields["counts"])
        assert fields["counts"].default_factory is int
        assert fields.items() >= others.items()


def test_fields_of_a_single_subtask_are_not_copied_to_several() -> None:
    assert redistributed(Nothing(), [{}], 3) == [{}] * 3
    assert redistributed(Nothing(), [{"total": 5}], 1) == [{"total": 5}]
    assert redistributed(Nothing(), [{"total": 5}] * 2, 3) == [{"total": 5}] * 3
    assert redistributed(Topics(), [{"counts": {}}], 3) == [{"counts": {}}] * 3
    for function, fields in ((Nothing(), {"total": 5}), (Topics(), {"counts": {}, "total": 5})):
        with pytest.raises(IncompatibleCheckpointError, match=r"only subtask of .* the field 'total' .*keyed_fields"):
            redistributed(function, [fields], 3)


def test_keyed_fields_of_subtasks_that_have_none() -> None:
    assert redistributed(Topics(), [{}, {"counts": {5: 1}}], 1) == [{"counts": {5: 1}}]
    assert redistributed(Topics(), [{}, {}], 2) == [{}, {}]


def test_the_function_redistributes_its_fields_itself() -> None:
    assert redistributed(Balances(), [{"total": 5}, {"total": 3}, {}], 2) == [{"total": 4}, {"total": 4}]
    assert redistributed(Balances(), [{"total": 7}], 3) == [{"total": 3}, {"total": 2}, {"total": 2}]  # not copied
    assert redistributed(Custom(), [[1, 2], [3]], 2) == [[1, 3], [2]]


def failing(parts: Any, parallelism: int) -> Any:
    raise ValueError("no")


class Returning(Nothing):
    def __init__(self, redistribute: Any) -> None:
        self.redistribute_fields = redistribute


@pytest.mark.parametrize(
    ("function", "parts", "said"),
    [
        (Nothing(), [{"a": 1}, {"a": 2}], "differ in the field 'a' of the function: 1 and 2 (subtasks 0 and 1), so "),
        (Nothing(), [{"a": 1}, {"a": 2}], "name it in the function's attribute keyed_fields"),
        (Nothing(), [{"a": 1}, {"a": 2}], "define redistribute_fields(parts, parallelism)"),
        (Nothing(), [{"a": [0] * 99 + [1]}, {"a": [0] * 99 + [2]}], "differ in fields of the function (subtasks 0 and"),
        (Unmovable(), [[1], [2]], "differ in what __getstate__ returned (subtasks 0 and 1)"),
        (KeyedUnmovable(), [[1], [2]], "the function defines __getstate__, so keyed_fields have no meaning"),
        (Misnamed(), [{}], "keyed_fields must be a tuple with the names of fields, not 'counts'"),
        (
            windowed(WindowStrategy.count(3), Windowed()),
            [{"a": 1, "b": 2}, {"a": 1, "b": 3}],
            "the field 'b' of the func",
        ),
        (Topics(), [{"limit": 1}, {"limit": 2}], "differ in the field 'limit' of the function: 1 and 2"),
        (Topics(), [{"counts": {1: 1}}, {"counts": {1: 2}}], "has the key 1 in two subtasks"),
        (Topics(), [{"counts": {(): 1, None: 3}}], "must have partition keys"),
        (Topics(), [{"counts": [1]}], "must be a dict, but it is [1]"),
        (Returning(lambda parts, parallelism: [{}]), [{}], "the fields of each of the 3 new subtasks, but it returned"),
        (Returning(lambda parts, parallelism: [1] * 3), [{}], "a dict of fields by name for each subtask, but one of"),
        (Returning(lambda parts, parallelism: [{"a": open}] * 3), [{}], "cannot be checkpointed"),
        (Returning(failing), [{}], "redistribute_fields failed: ValueError: no"),
    ],
)
def test_refused_fields(function: Any, parts: Sequence[Any], said: str) -> None:
    with pytest.raises(IncompatibleCheckpointError) as refused:
        redistributed(function, parts, 3)
    assert said in str(refused.value)
    assert "(uid 'f'), defined at " in str(refused.value)


def test_nothing_has_changed() -> None:
    found = changes(plan_of(Nothing(), 2), describe(plan_of(Nothing(), 2)).operators)
    assert all(change.keeps_subtasks for change in found.values())


def test_a_change_of_parallelism_reaches_all_operators_downstream() -> None:
    found = changes(plan_of(Nothing(), 2, senders=3), describe(plan_of(Nothing(), 2)).operators)
    assert found["f"].inputs == (InputChange(Senders.MERGED, Exchange.HASH, Exchange.HASH, 1, 3),)
    assert found["f"].keeps_data
    assert found["g"].inputs == (InputChange(Senders.MERGED, Exchange.FORWARD, Exchange.FORWARD, 2, 2),)
    assert not found["g"].keeps_subtasks


def test_an_exchange_follows_from_the_parallelism() -> None:
    found = changes(plan_of(Nothing(), 3), describe(plan_of(Nothing(), 2)).operators)
    assert found["f"].inputs == (InputChange(Senders.SAME, Exchange.HASH, Exchange.HASH, 1, 1),)
    assert found["g"].inputs == (InputChange(Senders.MERGED, Exchange.FORWARD, Exchange.REBALANCE, 2, 3),)


def test_another_sender_is_new() -> None:
    found = changes(plan_of(Nothing(), 2, uid="other"), describe(plan_of(Nothing(), 2)).operators)
    assert [one.senders for one in found["f"].inputs] == [Senders.NEW]
    assert found["f"].keeps_data


class Both(TwoInputNonBroadcastStreamProcessFunction[int, int, int]):
    def process_record_from_first_input(self, record: int, output: Any, ctx: Any) -> None:
        pass

    def process_record_from_second_input(self, record: int, output: Any, ctx: Any) -> None:
        pass


ENDED, SILENT, IDLE = SentBefore(NOTHING_SENT, True), SentBefore(NOTHING_SENT, False), SentBefore((1, 0, 7, 0), False)


def announced(plan: Plan, before: Plan, uid: str, sent: dict[str, list[SentBefore]]) -> list[Any]:
    """The kinds of control elements by channel, for each subtask of the operator ``uid``."""
    operator, codec = operator_named(plan, uid), job_context(plan).codec
    succession = ProgramSuccession(plan, describe(before).operators, codec, sent)
    return [
        {channel: [kind for _, kind, _, _ in controls] for channel, controls in succession.announcements(operator, one)}
        for one in range(operator.parallelism)
    ]


def test_what_sources_had_sent_is_announced_on_new_channels_only() -> None:
    plan = plan_of(Nothing(), 2, senders=3)
    sent = {plan.operators[0].uid: [ENDED, SILENT, IDLE]}
    assert announced(plan, plan, "f", sent) == [{}, {}]
    assert announced(plan, plan_of(Nothing(), 2, uid="other"), "f", sent) == [{0: [END], 2: [WATERMARK, STATUS]}] * 2
    assert announced(plan, plan_of(Nothing(), 2, uid="other"), "g", sent) == [{}, {}]


def test_what_sources_had_sent_is_announced_to_the_inputs_of_a_new_operator() -> None:
    def build(*, consumers: bool) -> Plan:
        env = local_environment()
        first, second = (
            env.from_source(DataGeneratorSource(abs, count=9)).with_uid(uid).with_parallelism(3)
            for uid in ("one", "two")
        )
        first.to_sink(CollectSink()).with_uid("first")
        second.to_sink(CollectSink()).with_uid("second")
        if consumers:
            mapped: Any = second.map(abs).with_uid("map").with_parallelism(3)
            mapped.process(Nothing()).with_uid("forward").with_parallelism(3).to_sink(CollectSink()).with_uid("third")
            both: Any = first.shuffle().connect_and_process(second.shuffle(), Both())
            both.with_uid("both").with_parallelism(1).to_sink(CollectSink()).with_uid("fourth")
        return env.build_plan()

    plan, before = build(consumers=True), build(consumers=False)
    assert [operator.uid for operator in plan.chained_to_sources] == ["map"]
    sent = {"two": [ENDED, SILENT, ENDED]}
    assert announced(plan, before, "both", sent) == [{3: [END], 5: [END]}]
    assert announced(plan, before, "forward", sent) == [{0: [END]}, {}, {0: [END]}]


def test_event_time_is_that_of_the_slowest_subtask() -> None:
    first, second = ((7, 9), (), (1,), 7, True), ((5, 9), (0,), (1,), 5, False)
    assert event_time([first, second], 2, []) == ((5, 9), (), (1,), 5, False)
    assert event_time([first, second], 2, [1]) == ((5, LONG_MIN), (), (), 5, False)


def test_a_subtask_has_sent_what_all_have_sent() -> None:
    assert sent_time([(False, True, 7, True), (True, False, 5, False)]) == (False, True, 5, False)
    assert sent_time([(True, True, 7, True), (True, False, 5, True)]) == (True, False, 5, True)


def test_inputs_are_idle_or_ended_if_they_are_in_all_subtasks() -> None:
    first = {"inputs": ([0], [1], True), "sent_time": (False, True, 5, False)}
    second = {"inputs": ([], [0, 1], True), "sent_time": (False, True, 5, False)}
    third = {"inputs": ([], [0], False), "sent_time": (False, False, 5, False)}
    assert input_status([first, second], 2, []) == ([], [0, 1], True)
    assert input_status([first, second, third], 2, []) == ([], [0], False)
