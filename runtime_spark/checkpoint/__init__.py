"""Checkpoints on Spark: their files, generations and leases, and the record of a job in them."""
