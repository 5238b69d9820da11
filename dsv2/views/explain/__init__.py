"""Explains pipelines before they run: their operators, exchanges and watermarks, as text, diagrams and JSON.

``env.explain()`` is the usual entry point. It neither runs nor changes a job.
"""

from dsv2.plan_view.finding import Finding, Severity
from dsv2.plan_view.model import (
    Code,
    EdgeView,
    HandlerView,
    OperatorView,
    Place,
    PlanView,
    Processing,
    StateView,
    WatermarkView,
)
from dsv2.plan_view.runtime_view import ExplainingRuntime, Fact, RuntimeView
from dsv2.views.explain.channels import ChannelDiagram, ChannelFormat
from dsv2.views.explain.explanation import Explanation, ExplanationFormat, explain
from dsv2.views.explain.schema import json_schema

__all__ = (
    "ChannelDiagram",
    "ChannelFormat",
    "Code",
    "EdgeView",
    "ExplainingRuntime",
    "Explanation",
    "ExplanationFormat",
    "Fact",
    "Finding",
    "HandlerView",
    "OperatorView",
    "Place",
    "PlanView",
    "Processing",
    "RuntimeView",
    "Severity",
    "StateView",
    "WatermarkView",
    "explain",
    "json_schema",
)
