"""Removal of the operators that only ``take`` and ``show`` have used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dsv2.graph.plan import DEAD_LETTERS

if TYPE_CHECKING:
    from dsv2.graph.builder import Node


def without_samples(nodes: Sequence[Node]) -> list[Node]:
    """Return the operators that a job consists of: without those that were looked at, and that lead to nothing else."""
    kept: list[Node] = []
    read: dict[int, set[int]] = defaultdict(set)  # the outputs of each operator that others read
    for node in reversed(nodes):
        if node.looked_at and not read[node.id]:
            continue
        letters = len(node.output_keys) + len(node.side_outputs) - 1
        if node.looked_at and node.side_outputs[-1:] == [DEAD_LETTERS] and letters not in read[node.id]:
            node = replace(node, side_outputs=node.side_outputs[:-1])
        for ref in node.inputs:
            read[ref.node.id].add(ref.output)
        kept.append(node)
    return kept[::-1]
