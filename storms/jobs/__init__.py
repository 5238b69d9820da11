"""The jobs under attack. Each module has a function ``run``, and an oracle of its output in plain Python."""
