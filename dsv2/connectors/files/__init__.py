"""A source that reads the files of a directory: lines of text or JSON, CSV, Parquet. Also readers of a ``FileSink``.

Parquet requires pyarrow: ``pip install "dsv2[files]"``. The Spark runtime installs it as well.
"""

from dsv2.connectors.files.csv_records import csv_records
from dsv2.connectors.files.directory import LocalFile, SourceFile
from dsv2.connectors.files.discovery import FileSplit
from dsv2.connectors.files.format import FileFormat
from dsv2.connectors.files.lines import json_lines, text_lines
from dsv2.connectors.files.parquet import parquet_records, parquet_rows
from dsv2.connectors.files.sink_output import WrittenFiles, read_files
from dsv2.connectors.files.sink_source import FileSinkSource, MicroBatches
from dsv2.connectors.files.source import FilesSource
from dsv2.connectors.files.tables import csv_rows

__all__ = (
    "FileFormat",
    "FileSinkSource",
    "FileSplit",
    "FilesSource",
    "LocalFile",
    "MicroBatches",
    "SourceFile",
    "WrittenFiles",
    "csv_records",
    "csv_rows",
    "json_lines",
    "parquet_records",
    "parquet_rows",
    "read_files",
    "text_lines",
)
