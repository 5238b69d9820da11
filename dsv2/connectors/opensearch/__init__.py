"""A sink for OpenSearch and Elasticsearch: ``pip install "dsv2[http]"``."""

from dsv2.connectors.opensearch.sink import OpenSearchSink

__all__ = ("OpenSearchSink",)
