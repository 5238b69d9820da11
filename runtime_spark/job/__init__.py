"""Running queries and batch jobs, and their handles."""
