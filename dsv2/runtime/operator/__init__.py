"""Runs an operator in a subtask, and the chain that it belongs to."""
