"""The channels of a plan as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from dsv2.base.printable import printable
from dsv2.base.quantities import counted
from dsv2.plan_view.model import OperatorView
from dsv2.views.explain.channels.model import ChannelsView, EdgeChannels, Mark, OperatorChannels, shown_subtasks

_WIDTH = 100


def to_text(view: ChannelsView) -> str:
    """Return the channels as lines of at most about 100 characters, without a final line break."""
    head = [view.title, *([f"  [{view.rules}]"] if view.rules else [])]
    return "\n\n".join(
        "\n".join(section) for section in (head, *(_operator(view, one) for one in view.operators.values()))
    )


def _operator(view: ChannelsView, shown: OperatorChannels) -> Iterator[str]:
    operator = shown.operator
    yield f"{printable(operator.title)}  [{counted(operator.parallelism, 'subtask')}]"
    for role in shown.roles:
        yield from textwrap.wrap(role, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    into = [edge for edge in view.edges if edge.edge.target == operator.id]
    for edge in into:
        source = view.operators[edge.edge.source].operator
        number = f"input {edge.edge.input + 1} " if len(into) > 1 or edge.edge.input else ""
        yield f"  {number}from {printable(source.title)}: {', '.join(_facts(edge))}"
        yield from _channels(edge, source, operator)


def _facts(edge: EdgeChannels) -> Iterator[str]:
    yield printable(edge.label)
    yield f"carries {', '.join(edge.carried)}" if edge.carried else "carries none of the watermarks"
    if edge.blocked:
        yield "blocked until other channels have sent it"


def _channels(edge: EdgeChannels, source: OperatorView, target: OperatorView) -> Iterator[str]:
    sources, hidden_sources = shown_subtasks(source.parallelism)
    _, hidden_targets = shown_subtasks(target.parallelism)
    for number in sources:
        if hidden_sources and number == sources[-1]:
            yield "    ..."
        own = [channel for channel in edge.channels if channel.source == number]
        targets = [str(channel.target) for channel in own]
        per_key = any(channel.mark is Mark.OF_KEY for channel in own)
        yield f"    subtask {number} to {_listed(targets, hidden_targets)}{': that of the key' * per_key}"


def _listed(targets: Sequence[str], hidden: int) -> str:
    if hidden and len(targets) > 1:
        return ", ".join((*targets[:-1], "...", targets[-1]))
    return ", ".join(targets)
