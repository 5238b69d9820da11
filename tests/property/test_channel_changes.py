"""The output of a gate after the parallelism of its senders or of its own operator has changed.

Old senders send the same control elements to all old subtasks, and each record to one of them. Then the subtasks are
replaced, new senders go on, catch up and end. The model is an unchanged run, in which each old sender has sent what the
new senders have that took over its work.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from dsv2.extension.event_time import EventTimeExtension
from dsv2.graph import Exchange
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.gate import InputGate
from dsv2.runtime.rescale.change import InputChange, Senders
from dsv2.runtime.rescale.gates import rescaled_gate
from dsv2.watermark import WatermarkDeclaration, new_builder
from dsv2.watermark.event_time import EVENT_TIME, LONG_MIN
from tests.profiles import examples
from tests.support import ACTIVE, ENDED, IDLE, packed, watermark

law = examples(150)

FOLDS: Mapping[str, Any] = {"min": min, "max": max, "and": all, "or": any}
VALUES = (0, 1, 2, 3)
Sender: TypeAlias = list[Any]
"""The elements that one sender sends to a subtask, in order."""


def declare(function: str, wait: bool, aligned: bool = False) -> WatermarkDeclaration:
    start = new_builder(f"{function} {wait} {aligned}")
    typed = start.type_long() if function in ("min", "max") else start.type_bool()
    built: WatermarkDeclaration = (
        getattr(typed, f"combine_function_{function}")().combine_wait_for_all_channels(wait).aligned(aligned).build()
    )
    return built


PLAIN = {d.identifier: d for d in (declare(function, wait) for function in FOLDS for wait in (False, True))}
ALIGNED = declare("max", wait=True, aligned=True)
DECLARATIONS = {
    **PLAIN,
    ALIGNED.identifier: ALIGNED,
    EVENT_TIME: EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION,
}


class Gate:
    """A gate that notes what it delivers. A record is a pair of the subtask that gets it and a number."""

    def __init__(self, channels: int, state: Any = None) -> None:
        self.records: list[tuple[int, int]] = []
        self.delivered: dict[str, list[int]] = {}
        self.statuses: list[bool] = []
        self.has_ended = False
        self.gate = InputGate(0, channels, DECLARATIONS, self)
        if state is not None:
            self.gate.restore(copy.deepcopy(state))
            self.gate.settle()

    def send(self, channel: int, *elements: Any) -> None:
        for element in elements:
            self.gate.receive(channel, *packed([element]))

    def last(self, identifier: str) -> int | None:
        return self.delivered.get(identifier, [None])[-1]

    def on_records(self, input_index: int, batch: RecordBatch[Any]) -> None:
        self.records += batch.records

    def on_watermark(self, input_index: int, identifier: str, value: int | bool) -> None:
        self.delivered.setdefault(identifier, []).append(value)

    def on_status(self, input_index: int, idle: bool) -> None:
        self.statuses.append(idle)

    def on_end(self, input_index: int) -> None:
        self.has_ended = True

    def on_crossing(self, input_index: int, waiting: Mapping[int, str]) -> NoReturn:
        raise AssertionError(f"There is only one aligned watermark: {waiting}")


def value_of(identifier: str, number: int) -> int:
    return number > 1 if identifier in PLAIN and identifier.split()[0] in ("and", "or") else number


def signals(identifiers: Iterable[str]) -> st.SearchStrategy[Any]:
    pairs = st.tuples(st.sampled_from(list(identifiers)), st.sampled_from(VALUES))
    return pairs.map(lambda pair: watermark(value_of(pair[0], pair[1]), pair[0]))


STATUSES = st.sampled_from([IDLE, ACTIVE])
ANYTHING = signals([*PLAIN, ALIGNED.identifier, EVENT_TIME]) | st.integers(0, 9) | STATUSES


@st.composite
def interleaved(draw: st.DrawFn, sent: Sequence[Sender]) -> list[tuple[int, Any]]:
    """The elements with their channels, in an order in which a gate may read them."""
    turns = draw(st.permutations([channel for channel, elements in enumerate(sent) for _ in elements]))
    scripts = [iter(elements) for elements in sent]
    return [(channel, next(scripts[channel])) for channel in turns]


def share(sent: Sequence[Sender], subtask: int, subtasks: int) -> list[Sender]:
    """Return the share of one of several subtasks: all signals, and the records with its numbers."""
    return [
        [(subtask, e) if isinstance(e, int) else e for e in of_one if not isinstance(e, int) or e % subtasks == subtask]
        for of_one in sent
    ]


def replaced(gates: Sequence[Gate], change: InputChange, subtasks: int) -> list[Gate]:
    states = [gate.gate.snapshot() for gate in gates]
    return [
        Gate(change.channels, rescaled_gate(states, change, k, DECLARATIONS, lambda record, _: record[1] % subtasks))
        for k in range(subtasks)
    ]


def hashed(senders: Senders, before: int, after: int) -> InputChange:
    return InputChange(senders, Exchange.HASH, Exchange.HASH, before, after)


def numbers(gates: Sequence[Gate]) -> Counter[int]:
    return Counter(number for gate in gates for _, number in gate.records)


def sent_numbers(sent: Iterable[Sender]) -> Counter[int]:
    return Counter(element for of_one in sent for element in of_one if isinstance(element, int))


@law
@given(st.data(), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
def test_same_senders_go_on_as_if_nothing_had_changed(data: st.DataObject, senders: int, old: int, new: int) -> None:
    sent = [data.draw(st.lists(ANYTHING, max_size=8)) for _ in range(senders)]
    order = data.draw(interleaved([list(range(len(of_one))) for of_one in sent]))
    cut = data.draw(st.integers(0, len(order)))
    steady, before = Gate(senders), [Gate(senders) for _ in range(old)]
    for channel, place in order[:cut]:
        element = sent[channel][place]
        if isinstance(element, int):
            steady.send(channel, (0, element))
            before[element % old].send(channel, (element % old, element))
        else:
            for gate in (steady, *before):
                gate.send(channel, element)
    delivered = {identifier: len(values) for identifier, values in steady.delivered.items()}
    statuses = len(steady.statuses)
    after = replaced(before, hashed(Senders.SAME, senders, senders), new)
    rest = [(channel, sent[channel][place]) for channel, place in order[cut:]]
    for channel, element in [*rest, *((channel, ENDED) for channel in range(senders))]:
        if isinstance(element, int):
            steady.send(channel, (0, element))
            after[element % new].send(channel, (element % new, element))
        else:
            for gate in (steady, *after):
                gate.send(channel, element)
    later = {
        i: values[delivered.get(i, 0) :] for i, values in steady.delivered.items() if values[delivered.get(i, 0) :]
    }
    for subtask, gate in enumerate(after):
        assert gate.delivered == later
        assert gate.statuses == steady.statuses[statuses:]
        assert gate.has_ended
        assert all(number % new == subtask for _, number in gate.records)
    assert numbers([*before, *after]) == sent_numbers(sent)


@law
@given(st.data(), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_new_senders_hold_back_catch_up_and_end(
    data: st.DataObject, old_senders: int, new_senders: int, old: int, new: int, forward: bool
) -> None:
    old = old_senders if forward else old
    sent = [data.draw(st.lists(ANYTHING, max_size=6)) for _ in range(old_senders)]
    sent = [[*of_one, ENDED] if data.draw(st.sampled_from([False, False, True])) else of_one for of_one in sent]
    if all(of_one[-1:] == [ENDED] for of_one in sent):
        sent[0].pop()
    before = [Gate(1 if forward else old_senders) for _ in range(old)]
    for subtask, gate in enumerate(before):
        if forward:
            gate.send(0, *((subtask, e) if isinstance(e, int) else e for e in sent[subtask]))
        else:
            for channel, element in data.draw(interleaved(share(sent, subtask, old))):
                gate.send(channel, element)
    exchange = Exchange.FORWARD if forward else Exchange.HASH
    change = InputChange(Senders.MERGED, exchange, Exchange.HASH, old_senders, new_senders)
    after = replaced(before, change, new)
    shown = {identifier: [gate.last(identifier) for gate in before] for identifier in [*PLAIN, EVENT_TIME]}

    later = [data.draw(st.lists(signals(PLAIN) | st.integers(10, 19), max_size=4)) for _ in range(new_senders)]
    rounds = data.draw(st.integers(0, 2))
    final = [data.draw(st.sampled_from(VALUES)) for _ in range(new_senders)]
    caught_up: list[Sender] = [
        [watermark(value_of(i, value), i) for i in PLAIN] + [watermark(4 + value, EVENT_TIME)] for value in final
    ]
    for subtask, gate in enumerate(after):
        said = dict[str, dict[int, int]]()
        for channel in range(new_senders):
            gate.send(channel, ACTIVE)
        for channel, element in data.draw(interleaved(share(later, subtask, new))):
            gate.send(channel, element)
            if hasattr(element, "identifier"):
                said.setdefault(element.identifier, {})[channel] = element.value
                assert_not_further(gate, element.identifier, said, shown, sent, new_senders)
        for _ in range(2):
            for channel in range(new_senders):
                gate.send(channel, *(watermark(value, ALIGNED.identifier) for value in [5] * rounds))
                rounds_due = len(gate.delivered.get(ALIGNED.identifier, []))
                if channel < new_senders - 1 and rounds and new_senders > 1 and _ == 0:
                    assert rounds_due == 0
            for channel, elements in enumerate(caught_up):
                gate.send(channel, *elements)
        assert len(gate.delivered.get(ALIGNED.identifier, [])) == 2 * rounds
        if not gate.gate.snapshot()[5]:
            for identifier in PLAIN:
                reached = gate.last(identifier) if identifier in gate.delivered else least(shown[identifier])
                assert reached == FOLDS[identifier.split()[0]](value_of(identifier, v) for v in final)
            assert gate.last(EVENT_TIME) == 4 + min(final)
        for channel in range(new_senders):
            gate.send(channel, ENDED)
        assert gate.has_ended
        assert not gate.gate.held_records
        times = gate.delivered.get(EVENT_TIME, [])
        assert times == sorted(times)
    assert numbers([*before, *after]) == sent_numbers([*sent, *later])


def assert_not_further(
    gate: Gate,
    identifier: str,
    said: Mapping[str, Mapping[int, int]],
    shown: Mapping[str, Sequence[int | None]],
    sent: Sequence[Sender],
    senders: int,
) -> None:
    """In the unchanged run, an old sender has only sent again when all new ones, which share its work, have."""
    last = gate.last(identifier)
    if last is None:
        return
    function, wait, _ = identifier.split()
    reached = [value for value in shown[identifier] if value is not None]
    now = said[identifier]
    if wait == "True" and len(now) < senders:
        old = [last_value(of_one, identifier) for of_one in sent if of_one[-1:] != [ENDED]]
        assert None not in old or last <= max(reached, default=LONG_MIN)
    if function in ("min", "and") and len(now) < senders and reached:
        assert last <= max([*reached, LONG_MIN])
    everything = [
        *now.values(),
        *(e.value for of_one in sent for e in of_one if getattr(e, "identifier", "") == identifier),
    ]
    assert last <= max(everything)


def least(values: Sequence[int | None]) -> int | None:
    return None if None in values else min(value for value in values if value is not None)


def last_value(elements: Sender, identifier: str) -> int | None:
    values = [element.value for element in elements if getattr(element, "identifier", None) == identifier]
    return values[-1] if values else None
