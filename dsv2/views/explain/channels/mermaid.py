"""The channels of a plan as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Iterator

from dsv2.views.explain.channels.model import ChannelsView, EdgeChannels, Mark, OperatorChannels, shown_subtasks
from dsv2.views.explain.mermaid import escaped

_ARROWS = {Mark.CARRIES: "==>", Mark.OF_KEY: "==>", Mark.OF_OTHER_KEYS: "-->", Mark.BARE: "-.->"}


def to_mermaid(view: ChannelsView) -> str:
    """Return the channels as a flowchart from top to bottom. The first channel of an edge has its label."""
    lines = ["flowchart TB"]
    for shown in view.operators.values():
        lines += _operator(shown)
    for edge in view.edges:
        lines += [f"    {line}" for line in _edge(edge)]
    return "\n".join(lines) + "\n"


def _operator(shown: OperatorChannels) -> Iterator[str]:
    operator = shown.operator
    subtasks, hidden = shown_subtasks(operator.parallelism)
    yield f'    subgraph o{operator.id}["{escaped(f"{operator.title} ×{operator.parallelism}")}"]'
    for number in subtasks:
        if hidden and number == subtasks[-1]:
            yield f'        o{operator.id}more["{escaped(f"… {hidden} more")}"]'
        text = "<br>".join(map(escaped, (f"{operator.title} {number}", *shown.roles)))
        yield f'        o{operator.id}s{number}["{text}"]'
    yield "    end"


def _edge(edge: EdgeChannels) -> Iterator[str]:
    first = edge.channels[0]
    blocked = ", blocked until others have sent it" if edge.blocked else ""
    for channel in edge.channels:
        label = f'|"{escaped(f"{edge.label}{blocked}")}"|' if channel is first else ""
        ends = f"o{edge.edge.source}s{channel.source}", f"o{edge.edge.target}s{channel.target}"
        yield f"{ends[0]} {_ARROWS[channel.mark]}{label} {ends[1]}"
