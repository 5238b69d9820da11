"""Changing tables: tables whose rows are inserted, updated and deleted, with joins and aggregates that follow them."""

from dsv2.tables.table import ConfiguredTable, GroupedTable, Table, no_key

__all__ = ("ConfiguredTable", "GroupedTable", "Table", "no_key")
