"""The explanation of a pipeline: what ``env.explain()`` returns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from html import escape
from os import PathLike
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec

from dsv2.checks.arguments import as_choice
from dsv2.graph import Plan
from dsv2.plan_view.finding import Severity
from dsv2.plan_view.model import PlanView
from dsv2.plan_view.runtime_view import RuntimeView
from dsv2.plan_view.view import view_of
from dsv2.views.explain.channels import ChannelDiagram, channels_of
from dsv2.views.explain.formats import save
from dsv2.views.explain.mermaid import to_mermaid
from dsv2.views.explain.svg import to_svg
from dsv2.views.explain.text import finding_lines, to_text


class ExplanationFormat(Enum):
    """The formats of an explanation."""

    TEXT = "text"
    MERMAID = "mermaid"
    SVG = "svg"
    JSON = "json"


ExplanationFormatChoice: TypeAlias = ExplanationFormat | Literal["text", "mermaid", "svg", "json"]


class Explanation:
    """A pipeline for people, in several formats. It has no connection to the pipeline, which may change afterwards.

    ``print`` shows it in the chosen format. A notebook shows the diagram and what the reader should know.

    Args:
        view: The model of the plan.
        format: The format of ``str()``.

    Raises:
        ConfigurationError: The format is unknown.
    """

    def __init__(self, view: PlanView, format: ExplanationFormatChoice = ExplanationFormat.TEXT) -> None:
        self.view = view
        self.format = as_choice(ExplanationFormat, format, "format")

    @property
    def is_valid(self) -> bool:
        """True if the pipeline can be built. If not, ``view.error`` says why."""
        return self.view.error is None

    def render(self, format: ExplanationFormatChoice) -> str:
        """Return the explanation in ``format``. Raises ``ConfigurationError`` for an unknown one."""
        return _RENDERERS[as_choice(ExplanationFormat, format, "format")](self.view)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a file in the format of its suffix: ``.txt``, ``.mmd``, ``.svg`` or ``.json``.

        Raises:
            ConfigurationError: The suffix is another one.
        """
        save(path, _RENDERERS, self.render)

    def channels(self, watermark: str | None = None, *, operator: str | None = None) -> ChannelDiagram:
        """Return a diagram of subtasks and of the channels between them.

        It shows which watermarks each channel carries, where they are combined and how, which functions are called,
        and where aligned watermarks and barriers block channels. Sinks are left out, because they ignore watermarks.

        Args:
            watermark: The identifier of a watermark, or ``"event time"``. Operators that it cannot reach are left out,
                except for those at the next channels. None: all watermarks and operators.
            operator: The uid or name of an operator: only the channels into it. None: those into all.

        Raises:
            ConfigurationError: There is no such watermark or operator, or the pipeline cannot be built.
        """
        return ChannelDiagram(channels_of(self.view, watermark, operator))

    def __str__(self) -> str:
        return self.render(self.format)

    __repr__ = __str__

    def _repr_svg_(self) -> str:
        return self.render("svg")

    def _repr_html_(self) -> str | None:
        """The diagram with its findings, for notebooks. None if another format was asked for."""
        if self.format not in (ExplanationFormat.TEXT, ExplanationFormat.SVG):
            return None
        found = [line for severity in Severity for line in finding_lines(self.view, severity)]
        shown = "\n".join(found if self.view.error is None else [self.view.error, *found])
        listed = f'<pre style="white-space: pre-wrap">{escape(shown)}</pre>' if shown else ""
        text = escape(self.render("text"))
        return f"{self.render('svg')}{listed}<details><summary>As text</summary><pre>{text}</pre></details>"


def explain(
    plan: Plan, format: ExplanationFormatChoice = ExplanationFormat.TEXT, *, runtime: RuntimeView | None = None
) -> Explanation:
    """Explain a plan. ``env.explain()`` does the same for a pipeline, and adds what its runtime knows.

    Args:
        plan: The plan.
        format: The format of ``str()`` of the result.
        runtime: How a runtime would run the plan. None: unknown.

    Raises:
        ConfigurationError: The format is unknown.
    """
    return Explanation(view_of(plan, runtime), format)


def _to_json(view: PlanView) -> str:
    return json.dumps(msgspec.to_builtins(view), indent=2)


_RENDERERS: Mapping[ExplanationFormat, Callable[[PlanView], str]] = MappingProxyType(
    {
        ExplanationFormat.TEXT: to_text,
        ExplanationFormat.MERMAID: to_mermaid,
        ExplanationFormat.SVG: to_svg,
        ExplanationFormat.JSON: _to_json,
    }
)
