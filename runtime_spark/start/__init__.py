"""The start of a job in a checkpoint: the choice of a generation, what a savepoint restores, the first files."""
