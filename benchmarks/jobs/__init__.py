"""The jobs of the benchmarks: records, user functions and sizes, in plain Python, for every peer that speaks it."""
