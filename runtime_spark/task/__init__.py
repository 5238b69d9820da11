"""The tasks that run a level of a plan."""
