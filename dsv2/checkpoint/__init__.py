"""What a checkpoint or savepoint knows about the program that wrote it, and how that differs from another program."""
