"""Spark and Python as the runtime finds them: versions, sessions, folders and processes."""
