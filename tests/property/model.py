"""Expected contents of the sinks of a random graph, from its sources alone, where no order matters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from tests.property.graphs import Graph, Port, Source, Step
from tests.property.traced import Responder

Bag: TypeAlias = Counter[tuple[str, int]]
"""Keys and numbers, without the names of the emitting functions."""


def expected_bags(graph: Graph) -> dict[Port, Bag]:
    """The records of each port, as far as they are the same in every run."""
    bags: dict[Port, Bag] = {}
    for index, node in enumerate(graph.nodes):
        if isinstance(node, Source):
            bags[Port(index)] = Counter(node.items)
        elif all(port in bags for port, _ in node.inputs):
            outputs = _bags_of(node, [bags[port] for port, _ in node.inputs])
            bags |= {Port(index, output): bag for output, bag in enumerate(outputs)}
    return bags


def _bags_of(step: Step, inputs: list[Bag]) -> Iterable[Bag]:
    main = inputs[0]
    by_key_only = step.kind == "keyed" or step.parallelism == 1  # all records of a key meet in one subtask
    response = step.behaviour.response
    if step.behaviour.dumps == "watermark" or response == "first":
        return ()  # depends on the order
    if response in ("count", "join") and not by_key_only:
        return ()
    if step.shape == "two-output" and response == "count":
        return ()  # a record's number picks the output, its position the count
    if step.shape == "two-input" and step.behaviour.dumps == "end" and step.kind == "keyed":
        return ()  # the input that ends first visits the keys that exist by then
    outputs = [Bag() for _ in range(step.outputs)]
    if response == "join":
        outputs[0] = _joined(inputs[0], inputs[1])
    elif response == "count":
        both = main + inputs[1] if step.shape == "two-input" else main
        for key, total in _totals(both).items():
            outputs[0].update((key, count) for count in range(1, total + 1))
    else:
        for key, number in (main + inputs[1] if step.shape == "two-input" else main).elements():
            for place, pair in enumerate(Responder(response).respond(0, key, number)):
                outputs[(number + place) % step.outputs][pair] += 1
    visits = list(_visits(step, inputs))
    if visits and step.kind == "keyed" and step.shape == "broadcast":
        return ()  # a rule visits the keys that exist by then
    for visit in visits:
        outputs[0].update(visit)
    return outputs


def _joined(left: Bag, right: Bag) -> Bag:
    return Counter(
        (key, number + other)
        for key, number in left.elements()
        for other_key, other in right.elements()
        if key == other_key
    )


def _totals(bag: Bag) -> Counter[str]:
    return Counter(key for key, _ in bag.elements())


def _visits(step: Step, inputs: list[Bag]) -> Iterator[Bag]:
    """The records emitted by visiting all partitions, visit by visit."""
    times = len(step.inputs) if step.behaviour.dumps == "end" else 0
    if step.shape == "broadcast":
        times += inputs[1].total()
    for _ in range(times):
        if step.kind == "keyed":
            yield Counter(_totals(inputs[0]).items())
        else:
            yield Counter({("-", 0): step.parallelism})
