"""The pipeline as data: what was written, and the frozen, checked plan that a runtime gets."""

from dsv2.graph.builder import InputRef, Node, PlanBuilder
from dsv2.graph.plan import Edge, Exchange, KeySelector, Operator, OperatorKind, Plan, RegisteredType

__all__ = (
    "Edge",
    "Exchange",
    "InputRef",
    "KeySelector",
    "Node",
    "Operator",
    "OperatorKind",
    "Plan",
    "PlanBuilder",
    "RegisteredType",
)
