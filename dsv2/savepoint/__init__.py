"""Savepoints: the state of a job in a folder, independent of the engine and of the parallelism."""

from dsv2.savepoint.editor import SavepointEditor, bootstrap
from dsv2.savepoint.savepoint import Savepoint
from dsv2.savepoint.state_table import StateTable

__all__ = ("Savepoint", "SavepointEditor", "StateTable", "bootstrap")
