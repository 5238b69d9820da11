"""What is reported of a job: failures, progress, metrics."""
