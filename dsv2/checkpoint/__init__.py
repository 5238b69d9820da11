"""The program that wrote a checkpoint or savepoint, and its differences from another program."""
