"""Ways through files: a file sink, and everything that reads its files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dsv2 import ExecutionEnvironment
from dsv2.connectors.files import read_files
from dsv2.errors import ConfigurationError
from dsv2.sinks import FileSink
from tests.values.columns import EmitHolder, holder_at


def through_files(
    environment: Callable[[], ExecutionEnvironment],
    options: Mapping[str, Any],
    format: Any,
    partition_by: Sequence[str],
    positions: Sequence[int],
) -> Mapping[int, Any]:
    """Write values with a file sink, and read them. Nothing may be written if a value is refused."""
    kind = holder_at(positions[0])
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "values"))
        env = environment()
        values = env.from_collection(list(positions)).process(EmitHolder())
        values.to_sink(FileSink(path, format=format, schema=kind, partition_by=partition_by))
        try:
            env.execute("values", **options)
        except Exception:
            assert not _written(path), "values were refused after others had been written"
            raise
        table = read_files(path).to_arrow()
        return dict(zip(table["position"].to_pylist(), table["value"].to_pylist(maps_as_pydicts="strict"), strict=True))


def _written(path: str) -> bool:
    try:
        return bool(read_files(path).to_arrow().num_rows)
    except ConfigurationError:  # there is no folder, or nothing was written
        return False
