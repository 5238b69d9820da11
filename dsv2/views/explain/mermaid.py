"""A plan as a Mermaid flowchart, which GitHub, GitLab and Jupyter show in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dsv2.base.printable import printable
from dsv2.graph import OperatorKind
from dsv2.plan_view.model import OperatorView, PlanView
from dsv2.views.explain.wording import about, details, numbered_edge_text, place_text

_SHAPES = {OperatorKind.SOURCE: ('(["', '"])'), OperatorKind.SINK: ('[["', '"]]')}
_MAX_LINE = 60


def to_mermaid(view: PlanView) -> str:
    """Return the plan as a flowchart from top to bottom."""
    lines = ["flowchart TB"]
    for head, chain in view.chains.items():
        lines += _chain(view, head, chain) if len(chain) > 1 else [f"    {_node(view, one)}" for one in chain]
    lines += [f"    {line}" for line in _edges(view)]
    return "\n".join(lines) + "\n"


def _chain(view: PlanView, head: int, chain: Sequence[OperatorView]) -> Iterator[str]:
    level = chain[0].level
    title = f"level {level}" if level else place_text(view, chain[0]) or "in the tasks that read the source"
    yield f'    subgraph chain{head}["{escaped(title)}"]'
    yield from (f"        {_node(view, operator)}" for operator in chain)
    yield "    end"


def _node(view: PlanView, operator: OperatorView) -> str:
    before, after = _SHAPES.get(operator.kind, ('["', '"]'))
    level = f", level {operator.level}" if operator.level else ""
    where = place_text(view, operator)
    text = [f"{operator.title} ×{operator.parallelism}{level}", about(operator), *([where] if where else ())]
    return f"o{operator.id}{before}{'<br>'.join(map(escaped, (*text, *details(operator))))}{after}"


def _edges(view: PlanView) -> Iterator[str]:
    for edge in view.edges:
        arrow = "==>" if edge.chained else "-->"
        yield f'o{edge.source} {arrow}|"{escaped(numbered_edge_text(view, edge))}"| o{edge.target}'


def escaped(text: str) -> str:
    """``text`` as part of a quoted string. Mermaid would interpret some characters, also as Markdown."""
    shown = printable(text)
    shown = shown if len(shown) <= _MAX_LINE else f"{shown[: _MAX_LINE - 1]}…"
    return "".join(letter if letter.isalnum() or letter in " .,:=-/()×…" else f"#{ord(letter)};" for letter in shown)
