"""Benchmarks: ``./run bench`` lists them, ``./run bench NAME`` runs one. ``results/`` holds what they last said."""
