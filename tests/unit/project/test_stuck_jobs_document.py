"""The error that ``docs/stuck-jobs.md`` shows is the real one."""

from __future__ import annotations

import re

import pytest

from tests import ROOT
from tests.documents import running_program

NAME = "docs/stuck-jobs.md"


def test_error_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with running_program(NAME) as module:
        text = module.text
    found = re.search(r"```text\n(.*?)\n```", (ROOT / NAME).read_text(), re.DOTALL)
    assert found is not None
    assert found.group(1) == text.replace(NAME, "orders.py").replace("~", "^")  # Python 3.13 marks columns with both
