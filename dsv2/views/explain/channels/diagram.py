"""The diagram that ``explanation.channels()`` returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from os import PathLike
from types import MappingProxyType
from typing import Literal

from dsv2.checks.arguments import as_choice
from dsv2.errors import ConfigurationError
from dsv2.views.explain.channels.mermaid import to_mermaid
from dsv2.views.explain.channels.model import ChannelsView
from dsv2.views.explain.channels.svg import to_svg
from dsv2.views.explain.channels.text import to_text
from dsv2.views.explain.formats import save


class ChannelFormat(Enum):
    """The formats of a diagram of channels."""

    TEXT = "text"
    MERMAID = "mermaid"
    SVG = "svg"


_MOST_OPERATORS = 16  # of a diagram


class ChannelDiagram:
    """The channels of a plan, in several formats. ``explanation.channels()`` creates it.

    ``print`` shows it as text, a notebook as a diagram. Of operators with more than three subtasks it has the
    first two and the last one.

    Args:
        view: The channels.
    """

    def __init__(self, view: ChannelsView) -> None:
        self._view = view

    def render(self, format: ChannelFormat | Literal["text", "mermaid", "svg"]) -> str:
        """Return the channels in ``format``.

        Raises:
            ConfigurationError: The format is unknown, or the diagram would have more than 16 operators.
        """
        chosen = as_choice(ChannelFormat, format, "format")
        if chosen is not ChannelFormat.TEXT and self._is_too_large:
            raise ConfigurationError(
                f"A diagram of the channels of {len(self._view.operators)} operators would not be readable. It may "
                f"have {_MOST_OPERATORS}. Choose a watermark, or the operator whose input you want to see: "
                f"channels('end-of-day', operator='totals'). The format 'text' has no limit."
            )
        return _RENDERERS[chosen](self._view)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a file in the format of its suffix: ``.txt``, ``.mmd`` or ``.svg``.

        Raises:
            ConfigurationError: The suffix is another one, or the diagram would have more than 16 operators.
        """
        save(path, _RENDERERS, self.render)

    def __str__(self) -> str:
        return to_text(self._view)

    __repr__ = __str__

    def _repr_svg_(self) -> str | None:
        """The diagram, for notebooks. None if it would be too large; they show the text then."""
        return None if self._is_too_large else to_svg(self._view)

    @property
    def _is_too_large(self) -> bool:
        return len(self._view.operators) > _MOST_OPERATORS


_RENDERERS: Mapping[ChannelFormat, Callable[[ChannelsView], str]] = MappingProxyType(
    {ChannelFormat.TEXT: to_text, ChannelFormat.MERMAID: to_mermaid, ChannelFormat.SVG: to_svg}
)
