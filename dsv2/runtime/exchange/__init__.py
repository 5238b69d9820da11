"""What travels between subtasks, and where it goes."""
