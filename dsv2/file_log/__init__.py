"""The folder of a ``FileSink`` and its log: which files belong to the output, and which micro-batches they contain."""

from dsv2.file_log.entry import DataFile, Entry
from dsv2.file_log.log import FileLog, FilePart, LogConflictError, parts_between
from dsv2.file_log.merge_selection import Merged, MergeGroup, Merger
from dsv2.file_log.sink_folder import TARGET_BYTES, Rolling, SinkFolder
from dsv2.file_log.state import LogState, read_log
