"""The example notebooks run, show what they should, and are stored without outputs."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from typing import Any

import nbformat
import pytest

from components.notebooks import NOTEBOOKS, page_of, run
from dsv2 import CollectSink, ExecutionEnvironment
from dsv2.base.notebook_cells import shown_file, with_cells
from dsv2.views.terminal import LiveView, watch
from tests import ROOT
from tests.durations import LONG

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
def notebook() -> nbformat.NotebookNode:
    """The example, as it is when it was run."""
    return run(ROOT / "examples" / "notebooks" / "first_steps.ipynb")


@pytest.fixture(scope="module")
def outputs(notebook: nbformat.NotebookNode) -> list[list[dict[str, Any]]]:
    """The outputs of its code cells."""
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
    assert "sales  [source x1]  FilesSource, bounded  Cell In[2]:2" in text(plan)
    assert "<svg" in plan["data"]["text/html"]


def test_handle_is_a_live_view_that_ends_with_the_job(outputs: list[list[dict[str, Any]]]) -> None:
    (view,) = outputs[5]
    assert text(view) == "daily totals: finished"
    assert "<td>totals</td><td>1,000</td><td>9</td>" in view["data"]["text/html"]
    (results,) = outputs[6]
    assert text(results).splitlines()[1].split() == ["0", "0", "295"]
    assert "<td>295</td>" in results["data"]["text/html"]


def test_error_shows_the_line_of_the_cell(outputs: list[list[dict[str, Any]]]) -> None:
    (error,) = outputs[7]
    assert error["ename"] == "UserFunctionError"
    assert "defined at Cell In[8]:1" in error["evalue"]
    assert "record:   0\n  Cell In[8], line 1, in <lambda>\n" in error["evalue"]
    assert "ipykernel" not in error["evalue"]


def test_page_has_cells_and_outputs(notebook: nbformat.NotebookNode) -> None:
    """The documentation's build makes pages of the notebooks."""
    page = page_of(notebook)
    assert page.startswith("# A pipeline in a notebook\n")
    assert "```python\njob = env.execute_async" in page
    assert "<b>daily totals</b>" in page
    assert "```text\nUserFunctionError: ZeroDivisionError" in page
    html = re.findall(r'^<div class="output">$(.*?)^</div>$', page, re.MULTILINE | re.DOTALL)
    assert len(html) == 6
    assert all("\n\n" not in part for part in html)


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


class FakeKernel:
    """The kernel of a notebook, which notes what is published."""

    def __init__(self) -> None:
        self.kernel = object()
        self.compile = None
        self.display_pub = self
        self.published: list[tuple[str, bool]] = []
        self.publishers: list[threading.Thread] = []
        self.ended = threading.Event()

    def get_ipython(self) -> FakeKernel:
        return self

    def publish(self, data: dict[str, str], *, transient: dict[str, str], update: bool) -> None:
        self.published.append((data["text/html"], update))
        self.publishers.append(threading.current_thread())
        if "running" not in data["text/plain"]:
            self.ended.set()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    kernel = FakeKernel()
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    return kernel


def environment(*numbers: int) -> ExecutionEnvironment:
    env = ExecutionEnvironment.get_instance("local")
    env.from_collection(numbers).map(lambda number: 6 // number).with_uid("quotients").to_sink(CollectSink())
    return env


def test_handle_of_a_failed_job_shows_the_error(kernel: FakeKernel) -> None:
    job: Any = environment(1, 0).execute_async("quotients")
    job._ipython_display_()
    assert kernel.publishers[0] is threading.current_thread(), "while the cell runs"
    assert kernel.ended.wait(LONG)
    last, is_update = kernel.published[-1]
    assert "● failed" in last
    assert "ZeroDivisionError: integer division or modulo by zero" in last
    assert is_update
    assert not kernel.published[0][1]
    assert "● failed" in job._repr_html_()


def test_watched_job_and_listener_use_the_display_of_the_notebook(kernel: FakeKernel) -> None:
    assert watch(environment(1).execute_async("quotients")).job_name == "quotients"
    assert "<td>quotients</td><td>1</td><td>1</td>" in kernel.published[-1][0]
    env = environment(1, 2)
    env.add_job_listener(LiveView())
    env.execute("again")
    assert "<b>again</b>" in kernel.published[-1][0]


def test_handle_in_a_terminal_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    job: Any = environment(1).execute_async("quotients")
    job.result()
    job._ipython_display_()
    assert capsys.readouterr().out == "<job 'quotients': FINISHED>\n"


FRAMES = """\
  File "/tmp/1.py", line 2, in <lambda>
  File "/tmp/1.py", line 7, in f
    given = 1
  File "/lib/other.py", line 1, in g
"""


def test_frames_of_workers_get_the_name_and_the_lines_of_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_cells(FRAMES) == FRAMES
    assert with_cells("") == ""
    monkeypatch.setitem(sys.modules, "IPython", FakeIPython)
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

    monkeypatch.setitem(sys.modules, "IPython", Idle)
    assert shown_file("/tmp/1.py") == "/tmp/1.py"
