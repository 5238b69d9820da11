"""Reads of Parquet leave no threads of Arrow behind.

Such a thread may release the last reference to an object of Python when Python ends, which aborts the process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from components.python_path import python_path

THREADS = Path("/proc/self/task")
PROGRAM = """
import sys
from contextlib import suppress
from pathlib import Path
import pyarrow as pa, pyarrow.fs, pyarrow.parquet as pq

def threads():
    found = {{}}
    for task in Path({tasks!r}).glob("*/comm"):
        with suppress(OSError):  # it has ended
            found[task.parent.name] = task.read_text().strip()
    return found

file = Path(sys.argv[1], "rows.parquet")
columns = {{name: list(range(100)) for name in "abcd"}}
pq.write_table(pa.table(columns), file)
before = threads()
{read}
names = [name for task, name in threads().items() if task not in before]
print([name for name in names if name != "jemalloc_bg_thd"])
"""
OF_A_SAVEPOINT = """
from dsv2.cli import main
from tests.unit.cli.test_command_line import savepoint_of
savepoint = savepoint_of("a b a c", Path(sys.argv[1], "savepoint"))
before = threads()
assert main(["state", "show", savepoint, "counts", "count"]) == 0
"""
OF_ITS_ROWS = """
from dsv2.savepoint.tables import rows_in
from tests.unit.cli.test_command_line import savepoint_of
files = list(Path(savepoint_of("a b a c", Path(sys.argv[1], "savepoint")), "state").glob("*/*.parquet"))
before = threads()
assert sum(len(list(rows_in(file.read_bytes(), file.name))) for file in files) > 3
"""
OF_A_SOURCE = """
from dsv2.connectors.files import parquet_rows
from dsv2.connectors.files.directory import LocalFile
assert sum(len(batch.values) for batch in parquet_rows(dict).read(LocalFile(str(file)), 0, 1000000)) == 100
"""
OF_FILES_TO_JOIN = """
from dsv2.connectors.files.table_files import joined
assert joined([file.read_bytes()] * 2, "parquet")[1] == (100, 100)
"""


@pytest.mark.skipif(not THREADS.exists(), reason="Only Linux lists the threads of a process in /proc.")
@pytest.mark.parametrize(
    "read",
    [OF_A_SAVEPOINT, OF_ITS_ROWS, OF_A_SOURCE, OF_FILES_TO_JOIN],
    ids=["savepoint", "rows of a savepoint", "source", "files to join"],
)
def test_reads_leave_no_threads(read: str, tmp_path: Path) -> None:
    program = PROGRAM.format(tasks=str(THREADS), read=read)
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, env={"PYTHONPATH": python_path()}, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
