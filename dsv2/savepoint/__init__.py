"""Savepoints: the state of a job in a folder, independent of the engine and of the parallelism."""

from dsv2.savepoint.editor import SavepointEditor, bootstrap
from dsv2.savepoint.savepoint import Savepoint, StateTable

__all__ = ("Savepoint", "SavepointEditor", "StateTable", "bootstrap")
