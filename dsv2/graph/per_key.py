"""Checks where per-key watermarks go: to the next keyed functions, by way of operators with a single channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsv2.errors import WatermarkDeclarationError
from dsv2.graph.keys import can_be_keys
from dsv2.graph.plan import Operator, Plan
from dsv2.spi import AsyncFunction, ColumnarFunction
from dsv2.watermark import KeyedWatermarkDeclaration

if TYPE_CHECKING:
    from dsv2.graph.flow import Flow


def receives_keys(operator: Operator) -> bool:
    """Return whether per-key watermarks end at ``operator``, because it is partitioned by a key of the records."""
    return operator.keyed and not operator.keys_stay


def key_callback(callback: str) -> str:
    """The name of the callback for per-key watermarks, given that for others, such as ``on_watermark``."""
    return callback.replace("on_", "on_key_", 1)


def check_per_key(flow: Flow) -> None:
    """Raise ``WatermarkDeclarationError`` if a per-key watermark meets an operator that cannot handle it."""
    for declaration in flow.plan.declarations.values():
        if isinstance(declaration, KeyedWatermarkDeclaration):
            for operator in flow.receivers(declaration.identifier):
                if (problem := _problem(flow.plan, operator, declaration)) is not None:
                    raise WatermarkDeclarationError(
                        f"The per-key watermark {declaration.identifier!r} reaches {operator} at {operator.location}, "
                        f"{problem}"
                    )


def _problem(plan: Plan, operator: Operator, declaration: KeyedWatermarkDeclaration) -> str | None:
    """Return the reason why an operator cannot handle a per-key watermark that reaches it, with a remedy."""
    keyed, key_type = receives_keys(operator), declaration.scope.key_type
    if not keyed and sum(plan.channels_of(edge) for edge in plan.edges_into[operator.id]) > 1:
        return (
            "which has several channels but no keys, so it cannot combine what they send for one key. Emit the "
            "watermark directly before key_by, or behind this operator."
        )
    for kind, name in ((ColumnarFunction, "a function on tables"), (AsyncFunction, "an async function")):
        if keyed and isinstance(operator.body, kind):
            return (
                f"which is {name}: it has no partition in which a watermark can be handled. Address the watermark to "
                f"other operators (deliver_to), or use a function that processes records one by one."
            )
    if keyed and not can_be_keys(operator, key_type):
        kind_of_keys = getattr(key_type, "__qualname__", str(key_type))
        return (
            f"whose key selector returns another type than {kind_of_keys}. Declare the watermark with the type of the "
            f"keys."
        )
    if operator.broadcast_wait is not None and operator.broadcast_wait.identifier == declaration.identifier:
        return "which waits for it. Wait for a watermark that is not about a key."
    return None
