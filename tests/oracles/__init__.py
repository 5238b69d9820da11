"""Answers worked out from the input alone, in plain Python, to hold results of runtimes against."""
