"""Expected results computed from the input alone, in plain Python, for comparison with runtimes."""
