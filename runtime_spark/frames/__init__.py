"""Frames as rows, and the workers that exchange them."""
