"""The example notebooks as pages of the documentation: a hook of MkDocs, which runs them.

A cell that fails ends the build, unless it has the tag ``raises-exception``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from jupyter_core.utils import ensure_async
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionComplete

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))

_UNTIL_THE_VIEW_HAS_ENDED = """
import threading
for thread in threading.enumerate():
    if thread.name.startswith("dsv2-view"):
        thread.join()
"""


class _Client(NotebookClient):
    """Applies updates of outputs whenever they come, as a notebook does.

    The base class drops those that a thread publishes between two cells.
    """

    async def _async_poll_output_msg(self, parent_msg_id: str, cell: nbformat.NotebookNode, cell_index: int) -> None:
        assert self.kc is not None
        while True:
            message = await ensure_async(self.kc.iopub_channel.get_msg(timeout=None))
            is_of_cell = message["parent_header"].get("msg_id") == parent_msg_id
            if is_of_cell or message["msg_type"] == "update_display_data":
                try:
                    self.process_message(message, cell, cell_index)
                except CellExecutionComplete:
                    return


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook. MkDocs calls it when it has found the other pages."""
    from mkdocs.structure.files import File

    for file in NOTEBOOKS:
        files.append(File.generated(config, f"{file.stem}.md", content=page_of(run(file))))
    return files


def run(file: Path) -> nbformat.NotebookNode:
    """Run a notebook in a new kernel, with the packages of this checkout.

    Returns:
        The notebook with the outputs of its cells.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell without the tag ``raises-exception`` failed.
    """
    notebook: nbformat.NotebookNode = nbformat.read(file, 4)
    notebook.cells.append(nbformat.v4.new_code_cell(_UNTIL_THE_VIEW_HAS_ENDED))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    client = _Client(notebook, timeout=240, iopub_timeout=240, startup_timeout=240, kernel_name="python3")
    kernel: Any = client.create_kernel_manager()
    kernel.kernel_spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    client.execute(env=environment)
    del notebook.cells[-1]
    return notebook


def page_of(notebook: nbformat.NotebookNode) -> str:
    """The cells of a notebook and their outputs as Markdown."""
    parts: list[str] = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            parts += [_block("python", cell.source), *map(_shown, cell.outputs)]
        else:
            parts.append(cell.source)
    return "\n\n".join(parts) + "\n"


def _shown(output: nbformat.NotebookNode) -> str:
    if output.output_type == "stream":
        return _block("text", output.text)
    if output.output_type == "error":
        return _block("text", f"{output.ename}: {output.evalue}")
    if "text/html" not in output.data:
        return _block("text", output.data["text/plain"])
    lines = [
        line for line in output.data["text/html"].splitlines() if line.strip()
    ]  # a blank line ends HTML in Markdown
    return "\n".join(['<div class="output">', *lines, "</div>"])


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"
