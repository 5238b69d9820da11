"""The jobs under attack. Each module has ``run``, and an oracle of its output in plain Python."""
