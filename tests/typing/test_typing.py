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
from typing import Any

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

[mypy-aws_msk_iam_sasl_signer.*,azure.*,joblib.*,pyarrow.*,sklearn.*]
ignore_missing_imports = true

[mypy-confluent_kafka.*]
implicit_reexport = true
"""


# A project of a user, with the strictest settings of Pyright. (basedpyright has its own Node.js, and needs no network.)
PYRIGHT: dict[str, Any] = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT), "shop"]}
# The rules that are broken by pyarrow, which has no types.
WITHOUT_TYPES = ("reportMissingTypeStubs", "reportUnknown")

# The settings of a user who has installed dsv2, and none for pyarrow.
INSTALLED = """
[mypy]
strict = true
mypy_path = $MYPY_CONFIG_FILE_DIR

[mypy-dsv2.*]
follow_imports = silent
"""
USES_COLUMNS = """
from pathlib import Path
from typing import NamedTuple

from dsv2 import CollectSink, ExecutionEnvironment
from dsv2.arrow import ArrowForeachBatchSink
from dsv2.connectors.files import FilesSource, csv_records, read_files


class Sale(NamedTuple):
    product: str
    amount: int


def build(env: ExecutionEnvironment, folder: Path, sink: CollectSink[Sale]) -> int:
    sales = env.from_source(FilesSource(folder, csv_records(Sale)))
    sales.to_sink(sink)
    sales.to_sink(ArrowForeachBatchSink(lambda table, batch: print(table.num_rows), Sale))
    rows: int = read_files(folder).to_arrow().num_rows
    return rows
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a new project."""
    folder = tmp_path_factory.mktemp("typing")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert cli.main(["new", "shop"]) == 0
    return folder


@pytest.fixture(scope="module")
def reported(folder: Path) -> dict[str, set[tuple[int, str]]]:
    """The (line, code) of every error by file, from one run of mypy over all files and documents."""
    config = folder / "mypy.ini"
    config.write_text(CONFIG)
    programs = [folder / document_file(name) for name in PROGRAMS]
    for file, program in zip(programs, PROGRAMS.values(), strict=True):
        file.write_text(program)
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


def test_pyright_accepts_correct_programs_as_well(folder: Path) -> None:
    included = [*map(str, ACCEPTED), "shop/shop", "shop/tests"]
    (folder / "pyrightconfig.json").write_text(json.dumps({**PYRIGHT, "include": included}))
    options = ["--outputjson", "--pythonpath", sys.executable, "--project", str(folder)]
    run = subprocess.run([sys.executable, "-m", "basedpyright", *options], capture_output=True, text=True, check=False)
    found = json.loads(run.stdout)
    assert found["summary"]["filesAnalyzed"] >= len(ACCEPTED) + 3
    errors = [
        f"{one['file']}:{one['range']['start']['line'] + 1}: {one['message']} ({one['rule']})"
        for one in found["generalDiagnostics"]
        if not (one["rule"].startswith(WITHOUT_TYPES) and "arrow" in Path(one["file"]).read_text())
    ]
    assert errors == []


@pytest.mark.nightly  # mypy analyses all of dsv2 once more
def test_program_that_does_not_import_pyarrow_needs_no_types_of_it(tmp_path: Path) -> None:
    (tmp_path / "mypy.ini").write_text(INSTALLED)
    (tmp_path / "program.py").write_text(USES_COLUMNS)
    (tmp_path / "dsv2").symlink_to(ROOT / "dsv2")
    command = [sys.executable, "-m", "mypy", "program.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.stdout == "Success: no issues found in 1 source file\n"
