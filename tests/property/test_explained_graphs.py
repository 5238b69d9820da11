"""Explanations of random graphs: each format shows each operator and each edge once, and nothing overlaps."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import combinations, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import assume, given
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment
from dsv2.graph import Exchange, OperatorKind, Plan
from dsv2.views.explain import Explanation, explain
from dsv2.views.explain.layout import Size, lay_out
from tests.profiles import examples
from tests.property.graphs import Graph, build, graphs

SVG = "{http://www.w3.org/2000/svg}"
Rectangle = tuple[float, float, float, float]


def plan_of(graph: Graph) -> Plan:
    env = ExecutionEnvironment.get_instance("local")
    with TemporaryDirectory() as folder:
        build(env, graph, "node", Path(folder))
    return env.build_plan()


def of_svg(explanation: Explanation) -> tuple[Counter[str], Counter[str]]:
    elements = list(ET.fromstring(explanation.render("svg")).iter())
    found = [Counter(value for one in elements if (value := one.get(f"data-{kind}"))) for kind in ("operator", "edge")]
    return found[0], found[1]


def of_mermaid(explanation: Explanation) -> tuple[Counter[str], Counter[str]]:
    """The input of an edge is part of its label if there are several."""
    text = explanation.render("mermaid")
    edges = re.findall(r'^ +o(\d+) (?:-->|==>)\|"(?:(\d+): )?.*"\| o(\d+)$', text, re.MULTILINE)
    ids = Counter(f"{source}-{target}-{int(number or 1) - 1}" for source, number, target in edges)
    return Counter(re.findall(r"^ +o(\d+)[\[(]", text, re.MULTILINE)), ids


def of_json(explanation: Explanation) -> tuple[Counter[str], Counter[str]]:
    shown = json.loads(explanation.render("json"))
    edges = Counter(f"{edge['source']}-{edge['target']}-{edge['input']}" for edge in shown["edges"])
    return Counter(str(operator["id"]) for operator in shown["operators"]), edges


def of_text(explanation: Explanation) -> tuple[Counter[str], Counter[str]]:
    """The text has uids instead of ids."""
    ids = {operator.title: operator.id for operator in explanation.view.operators}
    operators, edges = Counter[str](), Counter[str]()
    current = ""
    for line in explanation.render("text").splitlines():
        if found := re.match(r"  ([\w-]+)(?: \([\w -]+\))?  \[[\w-]+ x\d+\]", line):
            current = str(ids[found[1]])
            operators[current] += 1
        elif found := re.match(r"    (?:input (\d+) )?from ([\w-]+): ", line):
            edges[f"{ids[found[2]]}-{current}-{int(found[1] or 1) - 1}"] += 1
    return operators, edges


@examples(30)
@given(graphs())
def test_each_format_has_each_operator_and_edge_once(graph: Graph) -> None:
    plan = plan_of(graph)
    explanation = explain(plan)
    operators = Counter(str(operator.id) for operator in plan.operators)
    edges = Counter(f"{edge.source}-{edge.target}-{edge.input}" for edge in plan.edges)
    for found in (of_svg, of_mermaid, of_json, of_text):
        assert found(explanation) == (operators, edges), found.__name__


def rectangles(svg: str, kind: str) -> list[Rectangle]:
    places = [one.attrib for one in ET.fromstring(svg).iter(f"{SVG}rect") if kind in one.get("class", "").split()]
    return [(x := float(one["x"]), y := float(one["y"]), x + float(one["width"]), y + float(one["height"]))
            for one in places]  # fmt: skip


def overlap(one: Rectangle, other: Rectangle) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


@examples(30)
@given(graphs())
def test_boxes_and_operators_do_not_overlap(graph: Graph) -> None:
    plan = plan_of(graph)
    svg = explain(plan).render("svg")
    boxes, cards = rectangles(svg, "box"), rectangles(svg, "card")
    assert len(cards) == len(plan.operators)
    sinks = sum(operator.kind is OperatorKind.SINK for operator in plan.operators)
    assert len(boxes) == len(set(plan.chain_heads.values())) + sinks
    for same in (boxes, cards):
        assert not any(overlap(one, other) for one, other in combinations(same, 2))
    for card in cards:
        assert sum(overlap(card, box) for box in boxes) == 1


def drawn_subtasks(parallelism: int) -> list[int]:
    return list(range(parallelism)) if parallelism <= 3 else [0, 1, parallelism - 1]


@examples(20)
@given(graphs())
def test_diagrams_of_channels_have_each_channel_once(graph: Graph) -> None:
    plan = plan_of(graph)
    diagram = explain(plan).channels()
    functions = [operator for operator in plan.operators if operator.kind is not OperatorKind.SINK]
    assume(len(functions) <= 16)
    expected = Counter(
        f"{edge.source}.{source}-{edge.target}.{target}-{edge.input}"
        for edge in plan.edges
        if plan.operators[edge.target] in functions
        for source in drawn_subtasks(plan.operators[edge.source].parallelism)
        for target in drawn_subtasks(plan.operators[edge.target].parallelism)
        if source == target or edge.exchange is not Exchange.FORWARD
    )
    svg = diagram.render("svg")
    drawn = Counter(name for one in ET.fromstring(svg).iter() if (name := one.get("data-channel")))
    assert drawn == expected
    mermaid = re.findall(
        r"^    o(\d+)s(\d+) (?:==>|-->|-\.->).*? o(\d+)s(\d+)$", diagram.render("mermaid"), re.MULTILINE
    )
    assert Counter(f"{a}.{b}-{c}.{d}" for a, b, c, d in mermaid) == Counter(
        name.rpartition("-")[0] for name in expected.elements()
    )
    boxes, cards = rectangles(svg, "box"), rectangles(svg, "card")
    assert len(cards) == sum(len(drawn_subtasks(operator.parallelism)) for operator in functions)
    for same in (boxes, cards):
        assert not any(overlap(one, other) for one, other in combinations(same, 2))
    assert all(sum(overlap(card, box) for box in boxes) == 1 for card in cards)


@st.composite
def layered(draw: st.DrawFn) -> tuple[dict[int, Size], list[tuple[int, int]]]:
    """Boxes of any size, and edges that lead from a lower number to a higher one."""
    side = st.integers(1, 400)
    boxes = {
        number: Size(draw(side), draw(side), draw(st.integers(0, 50))) for number in range(draw(st.integers(1, 9)))
    }
    pairs = list(combinations(boxes, 2))
    return boxes, draw(st.lists(st.sampled_from(pairs), max_size=14)) if pairs else []


@examples(100)
@given(layered())
def test_layout_leads_down_without_overlaps(graph: tuple[dict[int, Size], list[tuple[int, int]]]) -> None:
    boxes, edges = graph
    layout = lay_out(boxes, edges)
    placed = {
        number: (x, y, x + boxes[number].width, y + boxes[number].height) for number, (x, y) in layout.places.items()
    }
    assert not any(overlap(one, other) for one, other in combinations(placed.values(), 2))
    assert all(left >= 0 and right <= layout.width + 0.01 for left, _, right, _ in placed.values())
    for (source, target), bends in zip(edges, layout.bends, strict=True):
        heights = [placed[source][3], *(y for bend in bends for _, y in bend), placed[target][1]]
        assert all(above <= below for above, below in pairwise(heights))
        for (x, top), (_, bottom) in bends:
            assert 0 <= x <= layout.width
            assert not any(overlap((x - 1, top, x + 1, bottom), box) for box in placed.values())
