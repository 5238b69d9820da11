"""Types are half of the API: correct programs, including those in the documents, pass. Common mistakes are reported.

So do the job and the tests that ``dsv2 new`` writes.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dsv2 import cli
from tests import ROOT
from tests.documents import PROGRAMS

HERE = Path(__file__).parent
ACCEPTED = sorted(HERE.glob("accepted*.py"))
REFUSED = sorted((HERE / "refused").glob("*.py"))

# At the end of a line of refused/: the error codes that mypy must report there.
MARK = re.compile(r"# E: ([a-z-]+(?:, [a-z-]+)*)$")


# The strictest settings of a user, except for packages without types or with hidden ones.
CONFIG = """
[mypy]
mypy_path = $MYPY_CONFIG_FILE_DIR/shop
strict = true
explicit_package_bases = true

[mypy-joblib.*,pyarrow.*,sklearn.*]
ignore_missing_imports = true

[mypy-confluent_kafka.*]
implicit_reexport = true
"""


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[tuple[int, str]]]:
    """The (line, code) of every error by file, from one run of mypy over all files and documents."""
    folder = tmp_path_factory.mktemp("typing")
    config = folder / "mypy.ini"
    config.write_text(CONFIG)
    programs = [folder / document_file(name) for name in PROGRAMS]
    for file, program in zip(programs, PROGRAMS.values(), strict=True):
        file.write_text(program)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert cli.main(["new", "shop"]) == 0
    project = [folder / "shop/shop/jobs.py", folder / "test_jobs.py"]
    shutil.copy(folder / "shop/tests/test_jobs.py", folder)  # a second package "tests" would hide the first one
    # Its own cache, because the settings differ from the project's.
    options = [f"--config-file={config}", f"--cache-dir={ROOT / '.mypy_cache' / 'typing'}", "--output=json"]
    command = [sys.executable, "-m", "mypy", *options, *map(str, ACCEPTED + REFUSED + programs + project)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    errors: dict[str, set[tuple[int, str]]] = {}
    for line in run.stdout.splitlines():
        report = json.loads(line)
        if report["severity"] == "error":
            errors.setdefault(Path(report["file"]).name, set()).add((report["line"], report["code"]))
    return errors


def document_file(name: str) -> str:
    return re.sub(r"\W", "_", f"document_{name}") + ".py"


@pytest.mark.parametrize("name", PROGRAMS)
def test_documents_have_the_right_types(name: str, reported: dict[str, set[tuple[int, str]]]) -> None:
    assert reported.get(document_file(name), set()) == set()


@pytest.mark.parametrize("file", ACCEPTED, ids=lambda file: file.stem)
def test_correct_programs_have_their_exact_types(file: Path, reported: dict[str, set[tuple[int, str]]]) -> None:
    assert reported.get(file.name, set()) == set()


@pytest.mark.parametrize("file", REFUSED, ids=lambda file: file.stem)
def test_exactly_the_marked_mistakes_are_reported(file: Path, reported: dict[str, set[tuple[int, str]]]) -> None:
    lines = enumerate(file.read_text().splitlines(), start=1)
    marked = {(n, code) for n, text in lines if (mark := MARK.search(text)) for code in mark[1].split(", ")}
    assert marked
    assert reported[file.name] == marked


def test_errors_are_reported_in_refused_files_only(reported: dict[str, set[tuple[int, str]]]) -> None:
    """An error within dsv2 itself would affect every user who runs mypy --strict."""
    assert set(reported) == {file.name for file in REFUSED}
