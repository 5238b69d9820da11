"""Savepoints of jobs on Spark: taken from a checkpoint, edited, and read by tasks."""
