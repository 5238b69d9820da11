"""The output of a job, and its differences from the expected output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.dataset as ds

__all__ = ("Output", "differences", "read_files")

Output: TypeAlias = Mapping[str, Counter[tuple[Any, ...]]]
"""The records of each sink, by the name of the sink."""


def read_files(folder: Path, file_format: str = "parquet", *, first_batch: int = 0) -> Counter[tuple[Any, ...]]:
    """Read the records in the folder of a ``FileSink``, for micro-batches from ``first_batch`` on."""
    files = [
        str(file)
        for file in folder.rglob(f"*.{file_format}")
        if not any(part.startswith(("_", ".")) for part in file.relative_to(folder).parts)
        and int(file.name.partition("-")[0]) >= first_batch
    ]
    if not files:
        return Counter()
    return Counter(_rows(ds.dataset(files, format=file_format).to_table()))


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def differences(expected: Output, found: Output) -> str:
    """Describe the number of missing and extra records of each sink; empty if there are none."""
    parts = []
    for sink in sorted(expected.keys() | found.keys()):
        wanted, actual = expected.get(sink, Counter()), found.get(sink, Counter())
        missing, extra = (wanted - actual).total(), (actual - wanted).total()
        if missing or extra:
            parts.append(f"{sink}: {missing:,} missing and {extra:,} extra of {wanted.total():,}")
    return "; ".join(parts)
