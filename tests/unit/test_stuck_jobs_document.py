"""The error that ``docs/stuck-jobs.md`` shows is the real one."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import pytest

from tests.documents import PROGRAMS, ROOT

NAME = "docs/stuck-jobs.md"


def test_error_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("document_stuck_jobs")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(ROOT)
    exec(compile(PROGRAMS[NAME], NAME, "exec"), vars(module))
    found = re.search(r"```text\n(.*?)\n```", (ROOT / NAME).read_text(), re.DOTALL)
    assert found is not None
    assert found.group(1) == module.text.replace(NAME, "orders.py")
