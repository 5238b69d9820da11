"""The types are half of the API: right programs check with their exact types, the commonest mistakes do not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ACCEPTED = sorted(HERE.glob("accepted*.py"))
REFUSED = sorted((HERE / "refused").glob("*.py"))

# At the end of a line of refused/: the codes of the errors that mypy must report there.
MARK = re.compile(r"# E: ([a-z-]+(?:, [a-z-]+)*)$")


@pytest.fixture(scope="module")
def reported() -> dict[str, set[tuple[int, str]]]:
    """Per file the (line, code) of every error, from one run of mypy over all of them."""
    # No config file: users have none of ours. Its own cache, because the flags differ from the project's.
    flags = ["--config-file=", "--strict", "--explicit-package-bases", f"--cache-dir={ROOT / '.mypy_cache' / 'typing'}"]
    command = [sys.executable, "-m", "mypy", *flags, "--output=json", *map(str, ACCEPTED + REFUSED)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    errors: dict[str, set[tuple[int, str]]] = {}
    for line in run.stdout.splitlines():
        report = json.loads(line)
        if report["severity"] == "error":
            errors.setdefault(Path(report["file"]).name, set()).add((report["line"], report["code"]))
    return errors


@pytest.mark.parametrize("file", ACCEPTED, ids=lambda file: file.stem)
def test_right_programs_check_with_their_exact_types(file: Path, reported: dict[str, set[tuple[int, str]]]) -> None:
    assert reported.get(file.name, set()) == set()


@pytest.mark.parametrize("file", REFUSED, ids=lambda file: file.stem)
def test_each_marked_mistake_is_reported_and_nothing_else(
    file: Path, reported: dict[str, set[tuple[int, str]]]
) -> None:
    lines = enumerate(file.read_text().splitlines(), start=1)
    marked = {(n, code) for n, text in lines if (mark := MARK.search(text)) for code in mark[1].split(", ")}
    assert marked
    assert reported[file.name] == marked


def test_errors_are_reported_in_these_files_only(reported: dict[str, set[tuple[int, str]]]) -> None:
    """An error within dsv2 itself would reach every user who runs mypy --strict."""
    assert set(reported) == {file.name for file in REFUSED}
