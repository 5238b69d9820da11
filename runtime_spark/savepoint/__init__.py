"""Savepoints of jobs on Spark: taken from a checkpoint, and restored into a new one."""
