"""Reports about a job: failures, progress and metrics."""
