"""The example notebooks run, show what they should, and are stored without outputs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from dsv2.cells import shown_file, with_cells
from tests.documents import ROOT

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))

# Debuggers warn about frozen modules, and a kernel about its transport. Neither concerns the notebook.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.name)
def test_notebooks_are_stored_without_outputs(file: Path) -> None:
    notebook = nbformat.read(file, 4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert [(cell.outputs, cell.execution_count) for cell in code] == [([], None)] * len(code)


@pytest.fixture(scope="module")
def outputs() -> list[list[dict[str, Any]]]:
    """Runs the notebook and returns the outputs of its code cells."""
    notebook = nbformat.read(ROOT / "examples" / "notebooks" / "first_steps.ipynb", 4)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    client = NotebookClient(notebook, timeout=120, kernel_name="python3")
    client.create_kernel_manager()
    client.km.kernel_spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    client.execute(env=environment)
    return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]


def text(output: dict[str, Any]) -> str:
    return str(output["data"]["text/plain"])


def test_streams_are_shown_as_tables(outputs: list[list[dict[str, Any]]]) -> None:
    (sales,), (keyed,), (totals,) = outputs[1:4]
    assert text(sales).splitlines()[2].split() == ["0", "kettle", "0"]
    assert "<th>product</th>" in sales["data"]["text/html"]
    assert text(keyed).splitlines()[0].split() == ["key", "day", "product", "amount"]
    assert text(totals).splitlines()[1].split() == ["0", "0", "295"]


def test_plan_names_the_cells(outputs: list[list[dict[str, Any]]]) -> None:
    (plan,) = outputs[4]
    assert "sales  [source x1]  DataGeneratorSource, bounded  Cell In[2]:2" in text(plan)
    assert "<svg" in plan["data"]["text/html"]


def test_handle_is_a_live_view_that_ends_with_the_job(outputs: list[list[dict[str, Any]]]) -> None:
    (view,) = outputs[5]
    assert text(view) == "daily totals: finished"
    assert "<td>totals</td><td>1,000</td><td>9</td>" in view["data"]["text/html"]
    (results,) = outputs[6]
    assert text(results).startswith("[Total(day=0, amount=295), ")


def test_error_shows_the_line_of_the_cell(outputs: list[list[dict[str, Any]]]) -> None:
    (error,) = outputs[7]
    assert error["ename"] == "UserFunctionError"
    assert "defined at Cell In[8]:1" in error["evalue"]
    assert "record:   0\n  Cell In[8], line 1, in <lambda>\n" in error["evalue"]
    assert "ipykernel" not in error["evalue"]


class FakeShell:
    """IPython's shell, in which ``/tmp/1.py`` is the third cell."""

    class compile:  # noqa: N801 - as IPython has it
        @staticmethod
        def format_code_name(name: str) -> tuple[str, str] | None:
            return ("Cell", "In[3]") if name == "/tmp/1.py" else None


class FakeIPython:
    @staticmethod
    def get_ipython() -> Any:
        return FakeShell()


FRAMES = """\
  File "/tmp/1.py", line 2, in <lambda>
  File "/tmp/1.py", line 7, in f
    given = 1
  File "/lib/other.py", line 1, in g
"""


def test_frames_of_workers_get_the_name_and_the_lines_of_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_cells(FRAMES) == FRAMES
    assert with_cells("") == ""
    monkeypatch.setitem(sys.modules, "IPython", FakeIPython)  # type: ignore[arg-type]
    monkeypatch.setattr("linecache.getline", lambda name, number: f"  line {number} of {name}\n")
    assert shown_file("/tmp/1.py") == "Cell In[3]"
    assert shown_file("/lib/other.py") == "/lib/other.py"
    assert with_cells(FRAMES) == (
        "  Cell In[3], line 2, in <lambda>\n"
        "    line 2 of /tmp/1.py\n"
        "  Cell In[3], line 7, in f\n"
        "    given = 1\n"
        '  File "/lib/other.py", line 1, in g\n'
    )


def test_python_without_a_notebook_is_no_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle:
        @staticmethod
        def get_ipython() -> None:
            return None

    monkeypatch.setitem(sys.modules, "IPython", Idle)  # type: ignore[arg-type]
    assert shown_file("/tmp/1.py") == "/tmp/1.py"
