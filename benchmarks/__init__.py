"""Benchmarks: ``./run bench`` lists them, ``./run bench NAME`` runs one. ``results/`` holds their latest reports."""
