"""Settings of the user's session that a query needs while it starts, and only then."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from runtime_spark.layout import StateLayout

__all__ = ("SESSION_SETTINGS", "starting")

SESSION_SETTINGS: Mapping[str, str] = MappingProxyType({"spark.python.unix.domain.socket.enabled": "true"})
"""What makes micro-batches of small jobs faster and only the builder of a session can set; give them to yours."""

# On a disk of this machine the usual manager of checkpoint files starts processes to set their rights; this one hardly.
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_FOR_LOCAL_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

# A query copies the session's settings when it starts; two queries must not start with each other's.
_STARTING = threading.Lock()
_MAP_SETTINGS = {
    # The only store that has maps.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A micro-batch commits what it has changed, not a snapshot of the files of the whole store.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Else each page that is put is looked up before, for a metric.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}


@contextmanager
def starting(
    spark: SparkSession,
    partitions: int,
    *,
    unchecked: bool = True,
    checkpoint: str | None = None,
    state_layout: StateLayout = StateLayout.BLOB,
) -> Iterator[None]:
    """Settings of ``spark`` under which a streaming query of dsv2 may start; put back as they were afterwards.

    The runtime does this by itself. You need it only around ``start()`` of a query of your own over ``to_dataframe``;
    ``partitions`` is then the parallelism of the pipeline; ``unchecked``: it has several levels or reads a DataFrame.
    ``checkpoint``: if that is on a local disk, its files are written faster, unless a setting of yours says how.
    ``state_layout``: that of the runtime.
    """
    settings = {"spark.sql.shuffle.partitions": str(partitions)}
    if unchecked:
        # Spark refuses a second applyInPandasWithState in a query, and row ids; but it runs both correctly.
        settings["spark.sql.streaming.unsupportedOperationCheck"] = "false"
    if state_layout is StateLayout.MAP:
        settings |= _MAP_SETTINGS
    with _STARTING:
        if checkpoint is not None and _is_local(spark, checkpoint) and spark.conf.get(_FILE_MANAGER, None) is None:
            settings[_FILE_MANAGER] = _FOR_LOCAL_FILES
        before = {name: spark.conf.get(name, None) for name in settings}
        try:
            for name, value in settings.items():
                spark.conf.set(name, value)
            yield
        finally:
            for name, old in before.items():
                if old is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, old)


def _is_local(spark: SparkSession, path: str) -> bool:
    scheme = urlparse(path).scheme
    return scheme == "file" or (not scheme and (spark.conf.get("spark.master", None) or "").startswith("local"))
