"""Settings of the user's session that a query needs only while it starts."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from runtime_spark.layout import StateLayout

__all__ = ("SESSION_SETTINGS", "settings", "starting")

SESSION_SETTINGS: Mapping[str, str] = MappingProxyType({"spark.python.unix.domain.socket.enabled": "true"})
"""Settings for the builder of your session that make micro-batches of small jobs faster."""

# On a local disk, the default manager of checkpoint files starts processes to set permissions; this one rarely does.
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_FOR_LOCAL_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

# A query copies the session's settings when it starts. Two queries must not start with each other's settings.
_STARTING = threading.RLock()
_MAP_SETTINGS = {
    # The only state store with maps.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A micro-batch commits its changes instead of a snapshot of the whole store.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Otherwise each write of a page looks the page up first, for a metric.
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
    """Set up ``spark`` to start a streaming query of dsv2. The previous settings are restored afterwards.

    The runtime does this itself. You need it only around ``start()`` of your own query over ``to_dataframe``.

    Args:
        spark: The session.
        partitions: The parallelism of the pipeline.
        unchecked: Whether the pipeline has several levels or reads a DataFrame, which Spark's check of streaming
            queries rejects. Default: True.
        checkpoint: The checkpoint. On a local disk, its files are then written faster, unless your settings choose a
            file manager. None (default): the file manager does not change.
        state_layout: The state layout of the runtime.
    """
    needed = {"spark.sql.shuffle.partitions": str(partitions)}
    if unchecked:
        # Spark rejects a second applyInPandasWithState in a query, and row ids, but it runs both correctly.
        needed["spark.sql.streaming.unsupportedOperationCheck"] = "false"
    if state_layout is StateLayout.MAP:
        needed |= _MAP_SETTINGS
    with _STARTING:
        if checkpoint is not None and _is_local(spark, checkpoint) and spark.conf.get(_FILE_MANAGER, None) is None:
            needed[_FILE_MANAGER] = _FOR_LOCAL_FILES
        with settings(spark, needed):
            yield


@contextmanager
def settings(spark: SparkSession, needed: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session, for one thread at a time. The previous settings are restored afterwards."""
    with _STARTING:
        before = {name: spark.conf.get(name, None) for name in needed}
        try:
            for name, value in needed.items():
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
