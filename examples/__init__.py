"""Example programs. ``./run hot-topics`` starts the first one."""
