"""Judges whether a run of a random graph was legal, from the logs of its functions.

Every record that was sent arrives once, where its partitioning allows, and at its place in its channel. Watermarks
arrive as their declarations require. Every function lives from ``open`` to ``close``, and loses no state. From the
sources, whose records are given, to the sinks no record can be lost or invented undetected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsv2.graph import Edge, Exchange, Operator, Plan
from dsv2.jobs import OperatorProgress
from dsv2.watermark import WatermarkDeclaration, WatermarkHandlingStrategy
from tests.oracles.channels import Element, Record, Rule, Signal, WatermarkHistory, is_legal
from tests.property.graphs import Graph, Port, Source, Step, node_name
from tests.property.traced import Event, Item, Responder, read_notes

_INCOMING = ("open", "record", "watermark", "end", "close")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run of a graph."""

    graph: Graph
    prefix: str
    plan: Plan
    folder: Path
    results: Mapping[Port, list[Item]]
    progress: Mapping[str, OperatorProgress]

    def operator(self, index: int) -> Operator:
        """The operator of a node."""
        name = node_name(self.prefix, index)
        return next(operator for operator in self.plan.operators if operator.uid == name)

    def notes(self, index: int, subtask: int) -> list[Event]:
        """The log of one subtask of a step."""
        return read_notes(self.folder / node_name(self.prefix, index), subtask)


def check_legal(outcome: Outcome) -> None:
    """Assert that the run was legal."""
    judge = _Judge(outcome)
    for index, node in enumerate(outcome.graph.nodes):
        if isinstance(node, Step):
            judge.check_step(index, node)
    for port, items in outcome.results.items():
        judge.check_sink(port, items)


class _Judge:
    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        mine = f"{outcome.prefix}-"
        self._declarations = {i: d for i, d in outcome.plan.declarations.items() if i.startswith(mine)}
        self._rules = {identifier: Rule.of(d) for identifier, d in self._declarations.items()}
        # node -> output of each subtask and output port
        self._sent: dict[int, list[list[list[Element]]]] = {
            index: self._sent_by_source(index, node)
            for index, node in enumerate(outcome.graph.nodes)
            if isinstance(node, Source)
        }

    def _sent_by_source(self, index: int, source: Source) -> list[list[list[Element]]]:
        name = node_name(self._outcome.prefix, index)
        items = [Record((key, number, f"{name}.{place}")) for place, (key, number) in enumerate(source.items)]
        return [[list(items[subtask :: source.parallelism])] for subtask in range(source.parallelism)]

    def check_step(self, index: int, step: Step) -> None:
        """Check the life of every subtask and the elements received by each of its inputs. Record its output for
        downstream."""
        operator = self._outcome.operator(index)
        assert operator.parallelism == step.parallelism
        notes = [self._outcome.notes(index, subtask) for subtask in range(step.parallelism)]
        for subtask, events in enumerate(notes):
            where = f"{operator.uid}, subtask {subtask}"
            _check_life(where, step, events)
            _check_state(where, step, events)
        for side, edge in enumerate(self._outcome.plan.edges_into[operator.id]):
            self._check_input(edge, step, side, notes)
        self._sent[index] = [list(self._sends(step, events)) for events in notes]
        self._check_progress(self._outcome.progress[operator.uid], notes)

    def _check_input(self, edge: Edge, step: Step, side: int, notes: Sequence[list[Event]]) -> None:
        port, how = step.inputs[side]
        sent = [outputs[port.output] for outputs in self._sent[port.node]]
        received = [_received(events, side) for events in notes]
        where = f"input {side} of {self._outcome.plan.operators[edge.target].uid}"
        receivers: dict[Item, list[int]] = {}
        for subtask, elements in enumerate(received):
            for element in elements:
                if isinstance(element, Record):
                    receivers.setdefault(element.value, []).append(subtask)
        expected = step.parallelism if how == "broadcast" else 1
        records = [element.value for elements in sent for element in elements if isinstance(element, Record)]
        assert Counter(records) == Counter(dict.fromkeys(receivers, 1)), f"{where}: lost or made up"
        assert all(len(set(them)) == len(them) == expected for them in receivers.values()), f"{where}: doubled"
        _check_partitioning(where, edge.exchange, sent, receivers)
        for subtask, elements in enumerate(received):
            channels = [
                [e for e in channel if isinstance(e, Signal) or subtask in receivers[e.value]]
                for upstream, channel in enumerate(sent)
                if edge.exchange is not Exchange.FORWARD or upstream == subtask
            ]
            assert is_legal(self._rules, channels, elements), (where, subtask, channels, elements)

    def _sends(self, step: Step, events: Sequence[Event]) -> Iterator[list[Element]]:
        for output in range(step.outputs):
            yield list(self._sends_to(output, step, events))

    def _sends_to(self, output: int, step: Step, events: Sequence[Event]) -> Iterator[Element]:
        across = _Across(self._declarations, self._rules, len(step.inputs))
        due: list[Signal] = []  # sent by the framework after the callback
        for event in events:
            if event[0] in _INCOMING:
                yield from due
                due = []
            if event[0] == "collect" and event[1] == output:
                yield Record(event[2])
            elif event[0] == "emit":
                yield Signal(event[1], event[2])
            elif event[0] == "watermark" and not step.behaviour.polls:
                due = across.forward(*event[1:])
            elif event[0] == "end":
                due = across.end(event[1])

    def _check_progress(self, progress: OperatorProgress, notes: Sequence[list[Event]]) -> None:
        kinds = Counter(event[0] for events in notes for event in events)
        assert (progress.records_in, progress.records_out) == (kinds["record"], kinds["collect"]), progress
        for identifier in self._declarations:
            last = []
            for events in notes:
                values = [event[3] for event in events if event[0] == "watermark" and event[2] == identifier]
                last.append(values[-1] if values else None)
            assert progress.watermarks.get(identifier, (None,) * len(notes)) == tuple(last), progress

    def check_sink(self, port: Port, items: Sequence[Item]) -> None:
        """Check all records of the port, those of each of its subtasks in their order."""
        sent = self._sent[port.node]
        expected = [[e.value for e in outputs[port.output] if isinstance(e, Record)] for outputs in sent]
        assert Counter(items) == Counter(item for channel in expected for item in channel), f"the sink of {port}"
        for channel in expected:
            own = set(channel)
            assert [item for item in items if item in own] == channel, f"the sink of {port}: order"


class _Across:
    """The watermarks that an operator forwards after showing them to its function."""

    def __init__(
        self, declarations: Mapping[str, WatermarkDeclaration], rules: Mapping[str, Rule], inputs: int
    ) -> None:
        self._declarations = declarations
        self._rules = rules
        self._inputs = inputs
        self._heard = {
            identifier: WatermarkHistory()
            for identifier, declaration in declarations.items()
            if declaration.combination_policy.combine_across_inputs and inputs > 1
        }

    def forward(self, side: int, identifier: str, value: int) -> list[Signal]:
        if self._declarations[identifier].default_handling_strategy is WatermarkHandlingStrategy.IGNORE:
            return []
        return self._combined(identifier, side, value) if identifier in self._heard else [Signal(identifier, value)]

    def end(self, side: int) -> list[Signal]:
        return [signal for identifier in self._heard for signal in self._combined(identifier, side, None)]

    def _combined(self, identifier: str, side: int, value: int | None) -> list[Signal]:
        heard, delivered = self._heard[identifier].after(self._rules[identifier], self._inputs, side, value)
        self._heard[identifier] = heard
        return [Signal(identifier, value) for value in delivered]


def _received(events: Sequence[Event], side: int) -> list[Element]:
    received: list[Element] = []
    for event in events:
        if event[:2] == ("record", side):
            received.append(Record(event[2]))
        elif event[:2] == ("watermark", side):
            received.append(Signal(event[2], event[3]))
    return received


def _check_life(where: str, step: Step, events: Sequence[Event]) -> None:
    incoming = [event for event in events if event[0] in _INCOMING]
    kinds = [event[0] for event in incoming]
    assert kinds[:1] == ["open"], where
    assert kinds[-2:] == ["end", "close"], where
    assert (kinds.count("open"), kinds.count("close")) == (1, 1), where
    for side in range(len(step.inputs)):
        own = [event[0] for event in incoming if event[1:2] == (side,)]
        assert own.count("end") == 1, where
        assert own[-1] == "end", where


def _check_state(where: str, step: Step, events: Sequence[Event]) -> None:
    """Fields last: names are counted consecutively, and responses are those of a function that has seen all records so
    far."""
    names = [event[2][2] for event in events if event[0] == "collect"]
    prefix, _, _ = where.partition(",")
    subtask = where.rpartition(" ")[2]
    assert names == [f"{prefix}.{subtask}.{count}" for count in range(len(names))], where
    twin = Responder(step.behaviour.response)
    keys: set[str] = set()
    for event, following in _blocks(events):
        said = [collected[2][:2] for collected in following if collected[0] == "collect"]
        visited = [visit[1] for visit in following if visit[0] == "visit"]
        if event[0] == "record" and not (step.shape == "broadcast" and event[1] == 1):
            _, side, (key, number, _), current_key = event
            assert said == twin.respond(side, key, number), (where, event)
            assert current_key == (key if step.kind == "keyed" else None), (where, event)
            keys.add(key)
        elif any(kind == "dump" for kind, *_ in following):
            partitions = keys if step.kind == "keyed" else {"-"}
            assert Counter(visited) == Counter(partitions), (where, event)
            counts = {key: twin.counts[key] if step.kind == "keyed" else 0 for key in partitions}
            assert dict(said) == counts, (where, event)
        else:
            assert said == [], (where, event)


def _blocks(events: Sequence[Event]) -> Iterator[tuple[Event, list[Event]]]:
    """Each callback with the events logged within it."""
    starts = [place for place, event in enumerate(events) if event[0] in _INCOMING]
    for start, stop in zip(starts, [*starts[1:], len(events)], strict=True):
        yield events[start], list(events[start + 1 : stop])


def _check_partitioning(
    where: str, exchange: Exchange, sent: Sequence[Sequence[Element]], receivers: Mapping[Item, Sequence[int]]
) -> None:
    for upstream, channel in enumerate(sent):
        items = [element.value for element in channel if isinstance(element, Record)]
        if exchange is Exchange.FORWARD:
            assert all(receivers[item] == [upstream] for item in items), f"{where}: left its subtask"
        elif exchange is Exchange.GLOBAL:
            assert all(receivers[item] == [0] for item in items), f"{where}: not in one place"
        elif exchange is Exchange.REBALANCE and receivers:
            dealt = Counter(receivers[item][0] for item in items)
            assert max(dealt.values(), default=0) <= min(dealt.values(), default=0) + 1 or len(dealt) == 1, where
    if exchange is Exchange.HASH:
        owners: dict[str, set[int]] = {}
        for (key, _, _), them in receivers.items():
            owners.setdefault(key, set()).update(them)
        assert all(len(them) == 1 for them in owners.values()), f"{where}: a key in two places"
