"""The trigger *available now* with Spark 4.1, which does not announce it to sources in Python, and reads once only.

The runtime triggers without a pause instead, sets the same mode in its sources itself, and stops the query when Spark
finds no new input.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from runtime_spark.platform.versions import AVAILABLE_NOW_SINCE, version_of

if TYPE_CHECKING or find_spec("pyspark.sql.streaming.datasource") is not None:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    SupportsTriggerAvailableNow = object

__all__ = ("SupportsTriggerAvailableNow", "at_end_of_input", "is_announced")


def is_announced(spark: SparkSession) -> bool:
    """Return whether the Spark of ``spark`` announces the trigger to sources in Python."""
    return version_of(spark.version) >= AVAILABLE_NOW_SINCE


def at_end_of_input(query: StreamingQuery, end: Callable[[], None]) -> None:
    """Call ``end``, in a thread, when no source of ``query`` has new input, or the query has ended."""

    def wait() -> None:
        with suppress(Exception):  # the query has failed, which its job reports, or the session has been stopped
            query.processAllAvailable()
        end()

    threading.Thread(target=wait, name=f"dsv2-available-{query.name}", daemon=True).start()
