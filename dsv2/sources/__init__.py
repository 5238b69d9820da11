"""Where records come from."""

from dsv2.sources.source import CollectionSource, DataFrameSource, DataGeneratorSource, IndexedSource, Source

__all__ = ("CollectionSource", "DataFrameSource", "DataGeneratorSource", "IndexedSource", "Source")
