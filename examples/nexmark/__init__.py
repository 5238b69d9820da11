"""Nexmark: the events of an online auction, and the 23 queries of the benchmark suite."""
