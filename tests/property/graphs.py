"""Random graphs: how they are drawn, and how one becomes a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment
from dsv2.sinks import CollectSink
from dsv2.sources import CollectionSource
from dsv2.testing import Stop, TestSource
from dsv2.watermark import WatermarkDeclaration, new_builder
from tests.property.traced import (
    Behaviour,
    Item,
    Moment,
    OneInput,
    Response,
    TwoInput,
    TwoOutput,
    WithBroadcast,
    key_of,
)

Kind: TypeAlias = Literal["non-keyed", "keyed", "global"]
How: TypeAlias = Literal["as-is", "key", "shuffle", "global", "broadcast"]
Shape: TypeAlias = Literal["one-input", "two-output", "two-input", "broadcast"]

_BECOMES: dict[How, Kind] = {"key": "keyed", "shuffle": "non-keyed", "global": "global"}
_FUNCTIONS: dict[Shape, Any] = {
    "one-input": OneInput,
    "two-output": TwoOutput,
    "two-input": TwoInput,
    "broadcast": WithBroadcast,
}


class Port(NamedTuple):
    """Output ``output`` of node ``node``."""

    node: int
    output: int = 0


@dataclass(frozen=True)
class Source:
    """A source of ``items``: keys and numbers."""

    items: tuple[tuple[str, int], ...]
    parallelism: int


@dataclass(frozen=True)
class Step:
    """A process function. ``swapped``: connected from the broadcast side. ``keeps_key``: the result stays keyed."""

    shape: Shape
    inputs: tuple[tuple[Port, How], ...]
    kind: Kind
    behaviour: Behaviour
    parallelism: int
    keeps_key: bool = False
    swapped: bool = False

    @property
    def outputs(self) -> int:
        """The number of outputs."""
        return 2 if self.shape == "two-output" else 1


@dataclass(frozen=True)
class Signals:
    """A watermark declaration without its name."""

    function: Literal["min", "max", "and", "or"]
    wait: bool
    aligned: bool
    across: bool
    ignore: bool

    def declare(self, identifier: str) -> WatermarkDeclaration:
        """The declaration with a name."""
        start = new_builder(identifier)
        typed: Any = start.type_long() if self.function in ("min", "max") else start.type_bool()
        builder = getattr(typed, f"combine_function_{self.function}")()
        builder.combine_wait_for_all_channels(self.wait).aligned(self.aligned).combine_across_inputs(self.across)
        declaration: WatermarkDeclaration = (
            builder.default_handling_strategy_ignore() if self.ignore else builder
        ).build()
        return declaration


@dataclass(frozen=True)
class Graph:
    """Sources and steps, numbered together, in an order in which inputs come first."""

    nodes: tuple[Source | Step, ...]
    signals: tuple[Signals, Signals]

    @property
    def leaves(self) -> list[Port]:
        """The ports that nothing reads. Each gets a sink."""
        read = {port for node in self.nodes if isinstance(node, Step) for port, _ in node.inputs}
        ports = [
            Port(index, output)
            for index, node in enumerate(self.nodes)
            for output in range(node.outputs if isinstance(node, Step) else 1)
        ]
        return [port for port in ports if port not in read]


def node_name(prefix: str, index: int) -> str:
    """The uid of a node, and the folder of its notes."""
    return f"{prefix}-{index}"


def build(
    env: ExecutionEnvironment,
    graph: Graph,
    prefix: str,
    folder: Path,
    records_per_batch: int | None = None,
    stop: int | None = None,
) -> dict[Port, CollectSink[Item]]:
    """Build ``graph`` as a pipeline and return the sinks of its leaves.

    ``stop``: The position of the first source at which the job stops.
    """
    declarations = [signals.declare(f"{prefix}-{name}") for signals, name in zip(graph.signals, "ab", strict=True)]
    streams: dict[Port, Any] = {}
    for index, node in enumerate(graph.nodes):
        name = node_name(prefix, index)
        if isinstance(node, Source):
            items = [(key, number, f"{name}.{place}") for place, (key, number) in enumerate(node.items)]
            source: CollectionSource[Any] = CollectionSource(items, records_per_batch=records_per_batch)
            if index == 0 and stop is not None:
                source = TestSource([*items[:stop], Stop(), *items[stop:]], records_per_batch=records_per_batch)
            streams[Port(index)] = env.from_source(source).with_uid(name).with_parallelism(node.parallelism)
        else:
            (folder / name).mkdir(exist_ok=True)
            keyed = node.kind == "keyed"
            function = _FUNCTIONS[node.shape](str(folder / name), node.behaviour, declarations, keyed)
            result = _apply(node, [_partitioned(streams[port], how) for port, how in node.inputs], function)
            handle = result.first if node.kind == "global" and node.shape == "two-output" else result
            handle.with_uid(name).with_parallelism(node.parallelism)
            pair = (result.first, result.second) if node.shape == "two-output" else (result,)
            streams |= {Port(index, output): stream for output, stream in enumerate(pair)}
    sinks: dict[Port, CollectSink[Item]] = {}
    for port in graph.leaves:
        sinks[port] = CollectSink()
        streams[port].to_sink(sinks[port]).with_uid(f"{node_name(prefix, port.node)}-{port.output}-sink")
    return sinks


def _partitioned(stream: Any, how: How) -> Any:
    if how == "as-is":
        return stream
    if how == "key":
        return stream.key_by(key_of)
    return stream.global_() if how == "global" else getattr(stream, how)()


def _apply(step: Step, inputs: Sequence[Any], function: Any) -> Any:
    names = ("new_key_selector",) if step.outputs == 1 else ("first_key_selector", "second_key_selector")
    selectors = dict.fromkeys(names, key_of) if step.keeps_key else {}
    if len(inputs) == 1:
        return inputs[0].process(function, **selectors)
    first, second = reversed(inputs) if step.swapped else inputs
    return first.connect_and_process(second, function, **selectors)


@st.composite
def graphs(draw: st.DrawFn, most_sources: int = 3, one_order: bool = False) -> Graph:
    """Graphs of up to ``most_sources`` sources and six functions, of every legal shape.

    ``one_order``: only graphs in which every function receives its input in a single possible order.
    """
    parallelisms = st.just(1) if one_order else st.integers(1, draw(st.integers(1, 3)))
    item = st.tuples(st.sampled_from("abcd"), st.integers(0, 9))
    sources = [
        Source(tuple(draw(st.lists(item, max_size=24))), draw(parallelisms))
        for _ in range(1 if one_order else draw(st.integers(1, most_sources)))
    ]
    shapes: list[Shape] = ["one-input", "two-output"]
    drawing = _Drawing(draw, parallelisms, shapes if one_order else [*shapes, "two-input", "broadcast"])
    drawing.nodes.extend(sources)
    drawing.kinds.update({Port(index): "non-keyed" for index in range(len(sources))})
    for _ in range(draw(st.integers(1, 6))):
        drawing.add_step()
    return Graph(tuple(drawing.nodes), (drawing.signals(st.booleans()), drawing.signals(st.just(False))))


class _Drawing:
    """A graph under construction, with the kinds of its streams."""

    def __init__(self, draw: st.DrawFn, parallelisms: st.SearchStrategy[int], shapes: Sequence[Shape]) -> None:
        self.draw = draw
        self.parallelisms = parallelisms
        self.shapes = shapes
        self.nodes: list[Source | Step] = []
        self.kinds: dict[Port, Kind] = {}
        self.answered = False

    def add_step(self) -> None:
        """Draw one more function, on existing streams."""
        draw = self.draw
        shape = draw(st.sampled_from(self.shapes))
        kinds: list[Kind] = ["non-keyed", "keyed"] if shape == "broadcast" else ["non-keyed", "keyed", "global"]
        kind = draw(st.sampled_from(kinds))
        inputs = [self._input(kind)]
        if shape == "two-input":
            inputs.append(self._input(kind))
        elif shape == "broadcast":
            inputs.append((draw(st.sampled_from(list(self.kinds))), "broadcast"))
        keeps_key = kind == "keyed" and draw(st.booleans())
        step = Step(
            shape,
            tuple(inputs),
            kind,
            self._behaviour(shape, keeps_key),
            1 if kind == "global" else draw(self.parallelisms),
            keeps_key,
            swapped=shape == "broadcast" and draw(st.booleans()),
        )
        result: Kind = "keyed" if keeps_key else "global" if kind == "global" else "non-keyed"
        self.kinds |= {Port(len(self.nodes), output): result for output in range(step.outputs)}
        self.nodes.append(step)

    def signals(self, special: st.SearchStrategy[bool]) -> Signals:
        """Draw a declaration. It is aligned or across inputs only if ``special`` allows it.

        Two aligned ones could wait for each other forever, in dsv2 as in Flink. Of two that are combined across inputs,
        the order in which the end of an input releases them is not defined.
        """
        draw = self.draw
        aligned, across = draw(special), draw(special)
        functions: list[Literal["min", "max", "and", "or"]] = ["min", "max", "and", "or"]
        wait = aligned or draw(st.booleans())
        return Signals(
            draw(st.sampled_from(functions)), wait, aligned, across, draw(st.sampled_from((False, False, True)))
        )

    def _input(self, kind: Kind) -> tuple[Port, How]:
        """A stream of ``kind``, converted from any existing one."""
        port = self.draw(st.sampled_from(list(self.kinds)))
        hows: list[How] = [how for how, becomes in _BECOMES.items() if becomes == kind]
        if self.kinds[port] == kind:
            hows = ["as-is"] if kind == "global" else ["as-is", "as-is", *hows]
        return port, self.draw(st.sampled_from(hows))

    def _behaviour(self, shape: Shape, keeps_key: bool) -> Behaviour:
        draw = self.draw
        responses: list[Response] = ["pass", "pass", "odd", "twice", "count", "first", "silent"]
        if not keeps_key:
            responses.append("rekey")
        if shape == "two-input":
            responses.extend(["join"] * 4)
        moments: list[Moment] = ["open", "record", "record", "end"]
        if not self.answered:
            moments.append("watermark")  # answering every watermark with another doubles them: one is enough
        emits = draw(st.lists(st.tuples(st.sampled_from((0, 0, 1)), st.sampled_from(moments)), max_size=2))
        self.answered |= any(moment == "watermark" for _, moment in emits)
        dumps: list[Literal["never", "watermark", "end"]] = ["never", "never", "watermark", "end"]
        return Behaviour(
            draw(st.sampled_from(responses)),
            tuple(emits),
            draw(st.sampled_from((False, False, True))),
            draw(st.sampled_from(dumps)),
        )
