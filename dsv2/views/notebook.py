"""Job handles in notebooks."""

from __future__ import annotations

from dsv2.jobs.handle import JobHandle


class NotebookHandle:
    """Shows a job handle at the end of a cell as a live view of its job. A base class of the handles of all runtimes.

    The views are loaded when a notebook asks for them.
    """

    def _repr_html_(self: JobHandle) -> str:
        from dsv2.views.terminal.live_view import html_of

        return html_of(self)

    def _ipython_display_(self: JobHandle) -> None:
        from dsv2.views.terminal.live_view import show_in_notebook

        show_in_notebook(self)
