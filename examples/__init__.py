"""Programs to read and to run; ``./run hot-topics`` starts the first one."""
