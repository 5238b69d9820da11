"""Merges files of a ``FileSink`` with Spark, so that records keep their order and their micro-batches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql import types as t

from dsv2.base.folders import Folder, literal_path
from dsv2.errors import InternalError
from dsv2.file_log import DataFile, Merged, MergeGroup
from dsv2.file_log.description import Description
from runtime_spark.frames.session import writing_parquet
from runtime_spark.platform.connect import is_connect

_GROUP = "dsv2_group"
_RANK = "dsv2_rank"
_PATH = "dsv2_path"
_SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*:(//[^/]*)?")


class SparkMerger:
    """Merges the files in the folder of a sink."""

    def __init__(self, spark: SparkSession, folder: Folder) -> None:
        self._spark = spark
        self._folder = folder

    def __call__(self, groups: Sequence[MergeGroup], staging: str) -> list[Merged]:
        """Merge groups; see ``Merger``. Each schema is a query of its own."""
        description = Description.read(self._folder)
        if description is None:
            raise InternalError(f"{self._folder.path} has no description of its files.")
        merged: dict[int, Merged] = {}
        for schema in sorted({group.schema for group in groups}):
            chosen = {number: group for number, group in enumerate(groups) if group.schema == schema}
            merged |= self._merge(description, schema, chosen, f"{staging}/{schema}")
        return [merged[number] for number in range(len(groups))]

    def _merge(
        self, description: Description, schema: int, groups: dict[int, MergeGroup], target: str
    ) -> dict[int, Merged]:
        files = [file for group in groups.values() for file in group.files]
        records = self._read(description, schema, files)
        counts = self._counts(records)
        by_path = {self._relative(path): path for path in counts}
        places = [
            (by_path[file.path], number, rank)
            for number, group in groups.items()
            for rank, file in enumerate(group.files)
            if file.path in by_path  # a file may be empty
        ]
        self._write(records, places, f"{self._folder.path}/{target}", description.format, len(groups))
        written = self._folder.tree(target)
        merged = {}
        for number, group in groups.items():
            head = f"{_GROUP}={number}/"
            (name,) = (name for name in written if name.startswith(head) and not name.endswith(".crc"))
            if description.format == "parquet":
                lengths = tuple(counts.get(by_path.get(file.path, ""), 0) for file in group.files)
            else:
                lengths = tuple(file.size for file in group.files)
                if sum(lengths) != written[name]:
                    raise InternalError(f"{name} has {written[name]} bytes instead of {sum(lengths)}.")
            merged[number] = Merged(f"{target}/{name}", written[name], lengths)
        return merged

    def _read(self, description: Description, schema: int, files: Sequence[DataFile]) -> DataFrame:
        reader = self._spark.read.option("recursiveFileLookup", "true")  # folders are not columns
        paths = [literal_path(self._folder.uri(file.path)) for file in files]
        if description.format != "parquet":
            return reader.option("lineSep", "\n").text(paths)
        everything: dict[str, Any] = description.schemas[schema]
        fields = [field for field in everything["fields"] if field["name"] not in description.partition_by]
        reader = reader.schema(t.StructType.fromJson({**everything, "fields": fields}))
        return reader.parquet(*paths, datetimeRebaseMode="CORRECTED", int96RebaseMode="CORRECTED")

    def _counts(self, records: DataFrame) -> dict[str, int]:
        """Return the number of records of each file, by its path as Spark writes it."""
        counted = records.groupBy(F.col("_metadata.file_path").alias("path")).count().collect()
        return {row["path"]: row["count"] for row in counted}

    def _relative(self, path: str) -> str:
        """Return the path of a file relative to the folder of the sink, from the path that Spark reports."""
        root = _SCHEME.sub("", self._folder.uri("")).rstrip("/")
        return _SCHEME.sub("", unquote(path)).removeprefix(f"{root}/")

    def _write(
        self, records: DataFrame, places: Sequence[tuple[str, int, int]], target: str, format: str, groups: int
    ) -> None:
        paths, numbers, ranks = zip(*places, strict=True)
        table = pa.table(
            {_PATH: list(paths), _GROUP: pa.array(numbers, pa.int32()), _RANK: pa.array(ranks, pa.int32())}
        )
        ranked = records.select(
            "*",
            F.col("_metadata.file_path").alias(_PATH),
            F.col("_metadata.file_block_start").alias("dsv2_block"),
            F.monotonically_increasing_id().alias("dsv2_row"),  # increases within a block
        ).join(F.broadcast(self._spark.createDataFrame(table)), _PATH)
        tasks = groups if is_connect(self._spark) else min(groups, self._spark.sparkContext.defaultParallelism)
        placed = ranked.repartition(tasks, _GROUP).sortWithinPartitions(_GROUP, _RANK, "dsv2_block", "dsv2_row")
        writer = placed.drop(_PATH, _RANK, "dsv2_block", "dsv2_row").write.partitionBy(_GROUP)
        if format == "parquet":
            with writing_parquet(self._spark):
                writer.parquet(target)
        else:
            writer.text(target, compression="none", lineSep="\n")
