"""The graph of a pipeline: the nodes that stream methods add, and the checked, frozen plan for a runtime."""

from dsv2.graph.broadcast_wait import WaitForBroadcast
from dsv2.graph.builder import InputRef, Node, PlanBuilder
from dsv2.graph.plan import Edge, Exchange, KeySelector, Operator, OperatorKind, Plan, RegisteredType
from dsv2.graph.watermark_handlers import InputHandler, handlers_of, owner_of_handlers
