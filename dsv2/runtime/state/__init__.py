"""State and timers of the subtasks of an operator."""
