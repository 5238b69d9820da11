"""The jobs of the benchmarks: records, user functions and sizes, in plain Python for all peers that support it."""
