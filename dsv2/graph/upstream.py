"""The part of a pipeline that one stream depends on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dsv2.graph.builder import InputRef, Node, PlanBuilder
from dsv2.graph.plan import Exchange, OperatorKind
from dsv2.graph.reachability import reachable
from dsv2.sinks import Sink


def pipeline_to(sink: Sink[Any], builder: PlanBuilder, ref: InputRef) -> PlanBuilder:
    """Return another pipeline: copies of the operators upstream of an output, and a sink with one subtask for it.

    Args:
        sink: The sink.
        builder: The pipeline. Its operators upstream of the output are marked as looked at.
        ref: The output of an operator.
    """
    needed = reachable([ref.node], lambda node: [each.node for each in node.inputs])
    part = PlanBuilder(builder.plan_of, builder.sample, is_part=True)
    copies: dict[int, Node] = {}
    for node in builder.nodes:
        if node in needed:
            node.looked_at = True
            inputs = tuple(replace(each, node=copies[each.node.id]) for each in node.inputs)
            copy = replace(node, id=len(part.nodes), inputs=inputs, side_outputs=[*node.side_outputs], looked_at=False)
            copies[node.id] = copy
            part.nodes.append(copy)
    end = InputRef(copies[ref.node.id], ref.output, Exchange.GLOBAL)
    part.add(OperatorKind.SINK, sink, "Sample", (end,), (), non_parallel=True)
    return part
