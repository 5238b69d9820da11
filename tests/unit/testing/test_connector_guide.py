"""The source and the sink of the guide in ``docs/connectors.md`` pass the suites, as the guide applies them."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tests import ROOT
from tests.documents import program_of

TITLE = "## A connector of your own"
PAGE = ROOT / "docs" / "connectors.md"

guide: Any = ModuleType("connector_guide")
sys.modules[guide.__name__] = guide  # its classes are pickled by their names
lines = PAGE.read_text().splitlines()
program = program_of(PAGE).splitlines()
program[: lines.index(TITLE)] = [""] * lines.index(TITLE)  # errors name the lines of the page
exec(compile("\n".join(program), str(PAGE), "exec"), vars(guide))

TestSqliteRows = guide.TestSqliteRows
TestSqliteSink = guide.TestSqliteSink
