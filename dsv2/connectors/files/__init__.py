"""A source that reads the files of a directory: lines of text or JSON, CSV, Parquet.

Parquet requires pyarrow: ``pip install "dsv2[files]"``. The Spark runtime installs it as well.
"""

from dsv2.connectors.files.discovery import FileSplit
from dsv2.connectors.files.format import FileFormat
from dsv2.connectors.files.lines import json_lines, text_lines
from dsv2.connectors.files.parquet import parquet_rows
from dsv2.connectors.files.source import FilesSource
from dsv2.connectors.files.tables import csv_rows

__all__ = ("FileFormat", "FileSplit", "FilesSource", "csv_rows", "json_lines", "parquet_rows", "text_lines")
