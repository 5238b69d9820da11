"""The picture of the live view in the documentation: ``./run python -m tests.documented_views`` draws it."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from dsv2.views.terminal.live_view import Summarizer
from dsv2.views.terminal.screen import job_text
from dsv2.views.terminal.texts import ShownJob
from tests import ROOT
from tests.fake_jobs import hot_topics_plan, hot_topics_progress

FILE = ROOT / "docs" / "assets" / "live_view.svg"

_COLUMNS = 104
_LOGS = (
    "$ ./run hot-topics",
    "Starting Spark ...",
    "WARN TaskSetManager: Stage 12 contains a task of very large size (1324 KiB).",
    "",
)


def lines() -> list[Text]:
    """Return the lines of the terminal."""
    summarizer = Summarizer(hot_topics_plan())
    for number in range(24):
        summary = summarizer.summary(hot_topics_progress(number))
    return [*map(Text, _LOGS), *job_text(ShownJob("hot topics", "running", 71_800, summary), _COLUMNS, 20)]


def picture() -> str:
    """The picture as SVG. It loads no fonts from elsewhere."""
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in lines():
        console.print(line, highlight=False)
    svg = console.export_svg(title="./run hot-topics", unique_id="live-view")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code", "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono'")


def main(file: Path = FILE) -> None:
    """Write the picture."""
    file.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
