"""Settings of the user's session that a query needs only while it starts."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from pyspark.sql import SparkSession

from dsv2.base.folders import Folder, LocalFolder
from runtime_spark.frames.layout import StateLayout
from runtime_spark.platform.folders import open_folder

SESSION_SETTINGS: Mapping[str, str] = MappingProxyType({"spark.python.unix.domain.socket.enabled": "true"})
"""Settings for the builder of your session that make micro-batches of small jobs faster."""

SHARED_FOLDERS = "spark.dsv2.sharedFolders"
"""The setting with the folders, separated by commas, that all machines of a cluster have mounted at the same path."""

# On a local disk, the default manager of checkpoint files starts more processes for each file than this one.
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_FOR_LOCAL_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

# Hadoop's default writes a checksum file for each local file, and starts a process for each to set its permissions.
_LOCAL_FILES = "fs.file.impl"
_WITHOUT_CHECKSUM_FILES = {
    _LOCAL_FILES: "org.apache.hadoop.fs.RawLocalFileSystem",
    f"{_LOCAL_FILES}.disable.cache": "true",  # other queries of the JVM keep theirs
}
_STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
_CODE_GENERATION = "spark.sql.codegen.factoryMode"

# A query copies the session's settings when it starts. Two queries must not start with each other's settings.
_STARTING = threading.RLock()
_MAP_SETTINGS = {
    # The only state store with maps.
    _STATE_STORE: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    # A micro-batch commits its changes instead of a snapshot of the whole store.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Otherwise each write of a page looks the page up first, for a metric.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
_PARQUET_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # many readers misread INT96, which is the default
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
_WRITING: dict[int, tuple[dict[str, str | None], int]] = {}
"""For each session with writers of Parquet: its settings before, and the number of writers."""


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
        checkpoint: The checkpoint. On the local disk of a session on one machine, or in a folder that
            ``spark.dsv2.sharedFolders`` declares, its files are then written faster, unless your settings choose a file
            manager. None (default): the file manager does not change.
        state_layout: The state layout of the runtime.
    """
    needed = {"spark.sql.shuffle.partitions": str(partitions)}
    if unchecked:
        # Spark rejects a second applyInPandasWithState in a query, and row ids, but it runs both correctly.
        needed["spark.sql.streaming.unsupportedOperationCheck"] = "false"
    if state_layout is StateLayout.MAP:
        needed |= _MAP_SETTINGS
    with _STARTING:
        if (
            checkpoint is not None
            and spark.conf.get(_FILE_MANAGER, None) is None
            and _is_for_local_files(spark, checkpoint)
        ):
            needed[_FILE_MANAGER] = _FOR_LOCAL_FILES
        with settings(spark, needed):
            yield


def for_frames(spark: SparkSession, checkpoint: str, state_layout: StateLayout) -> dict[str, str]:
    """Return settings for a query in which Spark handles only frames and state. The user's settings take precedence.

    Interpreted expressions: each task generates the code of its projections, only to find the compiled class in a
    cache. For the few frames of a micro-batch, interpreting is faster.

    No checksum files in a local checkpoint: state has checksums of dsv2 and of Spark, and Spark's logs are checked
    when the job starts. RocksDB requires the default file system.
    """
    found = {}
    if spark.conf.get(_CODE_GENERATION, None) is None:
        found[_CODE_GENERATION] = "NO_CODEGEN"
    chosen = (_FILE_MANAGER, _LOCAL_FILES, f"spark.hadoop.{_LOCAL_FILES}", _STATE_STORE)
    if (
        state_layout is StateLayout.BLOB
        and all(spark.conf.get(name, None) is None for name in chosen)
        and _is_for_local_files(spark, checkpoint)
        and not _began_with_rocksdb(open_folder(spark, checkpoint))
    ):
        found |= _WITHOUT_CHECKSUM_FILES
    return found


def _began_with_rocksdb(checkpoint: Folder) -> bool:
    # A query keeps the state store of its first start, whatever the session says later.
    offsets = checkpoint.numbers("offsets")
    return bool(offsets) and b"RocksDB" in (checkpoint.read(f"offsets/{offsets[-1]}") or b"")


@contextmanager
def settings(spark: SparkSession, needed: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session, for one thread at a time. The previous settings are restored afterwards."""
    with _STARTING:
        before = {name: spark.conf.get(name, None) for name in needed}
        try:
            _set(spark, needed)
            yield
        finally:
            _set(spark, before)


@contextmanager
def writing_parquet(spark: SparkSession) -> Iterator[None]:
    """Write Parquet files whose timestamps and old dates all readers understand, whatever the settings of the session.

    Several threads may write at the same time. The previous settings are restored after the last of them.
    """
    with _STARTING:
        before, writers = _WRITING.get(id(spark), ({}, 0))
        if not writers:
            before = {name: spark.conf.get(name, None) for name in _PARQUET_SETTINGS}
            _set(spark, _PARQUET_SETTINGS)
        _WRITING[id(spark)] = before, writers + 1
    try:
        yield
    finally:
        with _STARTING:
            before, writers = _WRITING.pop(id(spark))
            if writers > 1:
                _WRITING[id(spark)] = before, writers - 1
            else:
                _set(spark, before)


def _set(spark: SparkSession, values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def _is_for_local_files(spark: SparkSession, checkpoint: str) -> bool:
    shared = spark.conf.get(SHARED_FOLDERS, None) or ""
    return all_see(open_folder(spark, checkpoint), spark.conf.get("spark.master", None) or "", shared.split(","))


def all_see(folder: Folder, master: str, shared: Sequence[str]) -> bool:
    """Return whether the driver and all tasks see the same files on their local disks.

    Args:
        folder: The folder.
        master: The master of the session. On a cluster, the folder must be declared.
        shared: The folders that are declared to be shared.
    """
    if not isinstance(folder, LocalFolder):
        return False
    if master == "local" or master.startswith("local["):
        return True
    declared = [path.strip().rstrip("/") for path in shared]
    return any(path and f"{folder.path}/".startswith(f"{path}/") for path in declared)
