"""Every Python block of the documents is a program that runs. tests/typing checks its types."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from html import escape

import pytest

import dsv2
from tests import ROOT, documented_views
from tests.documents import PROGRAMS, documented_output, running_program

NEED_SERVERS = {"docs/connectors.md"}  # tests/spark/test_connectors_document.py runs it


def test_readme_is_a_front_page() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert len(re.findall(r"\]\([A-Za-z]", text)) <= 15, "links"
    assert 10 <= len(PROGRAMS["README.md"].strip().splitlines()) <= 35


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A document configures logging."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - NEED_SERVERS))
def test_blocks_run_and_print_what_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with running_program(name):
        pass
    assert capsys.readouterr().out.splitlines() == documented_output(PROGRAMS[name])


def test_picture_of_the_live_view_is_current() -> None:
    """It shows the same words. Its form depends on the version of rich."""
    drawn = documented_views.FILE.read_text().replace("&#160;", " ")
    for line in documented_views.lines():
        for word in line.plain.split():
            assert escape(word) in drawn
    assert "url(" not in drawn.replace("url(#", "")


def test_documentation_is_small() -> None:
    assert len(list((ROOT / "docs").rglob("*.md"))) <= 61


def test_reference_has_every_module_that_documents_import() -> None:
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "coming_from"]
    imported = {name for page in pages for name in re.findall(r"^from (dsv2[\w.]*) import", page.read_text(), re.M)}
    listed = {name for page in pages for name in re.findall(r"^::: ([\w.]+)$", page.read_text(), re.M)}
    assert {"dsv2.aggregates", "dsv2.jobs.watermark_report"} <= listed
    assert imported - listed <= {"dsv2.graph.plan", "dsv2.jobs.progress_log"}  # for runtimes and tools
    pages_in_menu = re.findall(r"reference/\w+\.md", (ROOT / "mkdocs.yml").read_text())
    assert sorted(pages_in_menu) == sorted(f"reference/{page.name}" for page in (ROOT / "docs/reference").glob("*.md"))


def test_documents_and_examples_import_names_of_the_root_from_the_root() -> None:
    programs = [*PROGRAMS.items(), *((str(file), file.read_text()) for file in (ROOT / "examples").glob("*.py"))]
    imported = [
        (name, module, alias.name)
        for name, program in programs
        for statement in ast.walk(ast.parse(program))
        if isinstance(statement, ast.ImportFrom) and (module := statement.module or "").startswith("dsv2.")
        for alias in statement.names
    ]
    assert imported
    assert [one for one in imported if one[2] in dsv2.__all__] == []


def test_documents_name_tests_that_exist() -> None:
    files = list((ROOT / "tests").rglob("*.py"))
    known = {file.stem for file in files}.union(*(re.findall(r"\bdef (test_\w+)", file.read_text()) for file in files))
    named = {name for page in (ROOT / "docs").rglob("*.md") for name in re.findall(r"`(test_\w+)`", page.read_text())}
    assert len(named) > 50
    assert named <= known
