"""The command line ``dsv2``."""

from dsv2.cli.main import main

__all__ = ("main",)
