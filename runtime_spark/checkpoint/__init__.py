"""Checkpoints on Spark: their files, generations and leases."""
