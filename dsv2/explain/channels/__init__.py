"""Diagrams of channels: the subtasks of operators, and which watermarks each channel carries."""
