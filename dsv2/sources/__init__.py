"""Where records come from."""

from dsv2.sources.interruption import Crash, Interruption, Pause, Stop
from dsv2.sources.source import CollectionSource, DataFrameSource, DataGeneratorSource, IndexedSource, Source

__all__ = (
    "CollectionSource",
    "Crash",
    "DataFrameSource",
    "DataGeneratorSource",
    "IndexedSource",
    "Interruption",
    "Pause",
    "Source",
    "Stop",
)
