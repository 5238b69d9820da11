"""Test suites for connectors: derive a class from one, name a system, and inherit the tests."""

from dsv2.testing.connectors.indexed_suite import IndexedSourceTestSuite
from dsv2.testing.connectors.sink_suite import SinkTestSuite
from dsv2.testing.connectors.source_suite import SourceTestSuite
from dsv2.testing.connectors.suite import AWKWARD_TEXTS, ConnectorTestSuite

__all__ = ("AWKWARD_TEXTS", "ConnectorTestSuite", "IndexedSourceTestSuite", "SinkTestSuite", "SourceTestSuite")
