"""The class by which Spark knows a source of frames.

Spark unpickles it in planner processes on the driver's host, which do not see what ``--py-files`` ships. So it is
pickled by value, and refers to no module of the project before it has extended the import path.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from dsv2.base.clock import Clock
from runtime_spark.frames.rows import ROW_SCHEMA
from runtime_spark.platform.closures import to_bytes
from runtime_spark.source.frame_source import Feed, SparkOffset


def frame_source_class(
    name: str,
    feed: Feed,
    packed: bytes,
    operator_id: int,
    clock: Clock,
    start: SparkOffset | None = None,
    *,
    only_available: bool = False,
) -> type[DataSource]:
    """Create a data source class for ``spark.dataSource.register``.

    Args:
        name: Its name.
        feed: The input.
        packed: The job for the workers.
        operator_id: The source.
        clock: The clock of the planner.
        start: The offset from a savepoint at which a new job begins. None (default): the beginning of the source.
        only_available: The job ends at the first check without new input. Default: only if Spark announces it.
    """
    pickled, row_schema = to_bytes((feed, clock)), ROW_SCHEMA
    own_path, installed = import_path()

    class FrameSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return row_schema

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
            from importlib.util import find_spec

            sys.path.extend(path for path in own_path if path not in sys.path)  # as in the driver
            if find_spec("runtime_spark") is None:  # installed for the Python of the driver only
                sys.path.extend(installed)
            from runtime_spark.platform.closures import from_bytes
            from runtime_spark.source.frame_source import FrameStreamReader

            feed, clock = from_bytes(pickled)
            return FrameStreamReader(feed, clock, pickled, packed, operator_id, start, only_available=only_available)

    return FrameSource


def import_path() -> tuple[list[str], list[str]]:
    """Return where this program finds its modules: outside and inside of the installation of Python.

    A function that a process of Spark's driver runs extends its own import path with both, the second one if it does
    not find this project.
    """
    installed = tuple(f"{prefix}{os.sep}" for prefix in (sys.prefix, sys.base_prefix))
    paths = [os.path.abspath(path) for path in sys.path]
    inside = [path for path in paths if path.startswith(installed)]
    return [path for path in paths if path not in inside], inside
