"""A directory of files as a source: lines of text or JSON, CSV, Parquet.

Parquet needs pyarrow: ``pip install "dsv2[files]"``, or what Spark needs anyway.
"""

from dsv2.connectors.files.discovery import FileSplit
from dsv2.connectors.files.format import FileFormat
from dsv2.connectors.files.lines import json_lines, text_lines
from dsv2.connectors.files.parquet import parquet_rows
from dsv2.connectors.files.source import FilesSource
from dsv2.connectors.files.tables import csv_rows

__all__ = ("FileFormat", "FileSplit", "FilesSource", "csv_rows", "json_lines", "parquet_rows", "text_lines")
