"""How the handle of a job appears in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsv2.job import JobHandle

__all__ = ("DisplayedJob",)


class DisplayedJob:
    """Base class of job handles. In a notebook, a handle at the end of a cell is a live view of its job."""

    def _repr_html_(self: JobHandle) -> str:
        from dsv2.terminal.live_view import html_of

        return html_of(self)

    def _ipython_display_(self: JobHandle) -> None:
        from dsv2.terminal.live_view import show_in_notebook

        show_in_notebook(self)
