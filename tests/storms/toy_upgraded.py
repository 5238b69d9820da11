"""A job with the files of ``storms.jobs.upgraded``: ``python -m tests.storms.toy_upgraded FAULT FOLDER SCRIPT``.

With the fault "lost" it loses a record. It waits forever while it takes a savepoint.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from storms.jobs.upgraded import Script, expected


def run(fault: str, folder: Path, script: Script) -> None:
    """Carry out ``script``."""
    if script.take is not None:
        (folder / script.into / "state/0").mkdir(parents=True)
        signal.pause()
    wanted = expected(script.records, servers=False)
    for sink, place in (("files", "counted"), ("total", "total")):
        rows = sorted(wanted[sink].elements())
        kept = rows[1:] if fault == "lost" and sink == "files" else rows
        (folder / place).mkdir(parents=True)
        columns = [pa.array(column) for column in zip(*kept, strict=True)]
        names = [f"column {n}" for n in range(len(columns))]
        pq.write_table(pa.table(columns, names), folder / place / "0000000000-a.parquet")


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), Script.decoded(sys.argv[3]))
