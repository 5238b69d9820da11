"""Savepoints: the state of a job in a folder, independent of the engine and of the parallelism."""
