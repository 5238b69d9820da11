"""Connects streams to a broadcast stream."""

from __future__ import annotations

from typing import Any

from dsv2.errors import PlanError
from dsv2.functions import TwoInputBroadcastStreamProcessFunction
from dsv2.graph import InputRef, KeySelector, OperatorKind, WaitForBroadcast
from dsv2.graph.builder import caller_location
from dsv2.stream_arguments import require, require_selector
from dsv2.stream_base import Stream

__all__ = ("connect_broadcast", "refuse_wait")


def connect_broadcast(
    stream: Stream[Any],
    side: Stream[Any],
    function: object,
    wait: WaitForBroadcast | None,
    key_selector: KeySelector | None = None,
    version: int | None = None,
) -> InputRef:
    """Add an operator that runs ``function`` on ``stream``, keyed or not, with ``side`` as broadcast input."""
    require_selector("connect_and_process", key_selector, "new_key_selector")
    if wait is not None and not isinstance(wait, WaitForBroadcast):
        raise PlanError(
            f"connect_and_process at {caller_location()}: wait_for_broadcast must be a WaitForBroadcast, not {wait!r}."
        )
    name = "Broadcast-TwoInput-Process" if stream._ref.key_selector is None else "Keyed-TwoInput-Broadcast-Process"
    ref = stream._add(
        OperatorKind.TWO_INPUT_BROADCAST,
        require(function, TwoInputBroadcastStreamProcessFunction),
        name,
        side._ref,
        output_keys=(key_selector,),
        version=version,
    )
    ref.node.broadcast_wait = wait
    return ref


def refuse_wait(wait: WaitForBroadcast | None) -> None:
    """Raise ``PlanError`` if ``wait`` is given for a connection without a broadcast side."""
    if wait is not None:
        raise PlanError(
            f"connect_and_process at {caller_location()}: wait_for_broadcast requires a broadcast stream. Call "
            f"broadcast() on the side to be read first."
        )
