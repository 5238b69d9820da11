"""A program that is changed between two starts, by editing a copy of its source code."""
