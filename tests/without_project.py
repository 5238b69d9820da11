"""A Python environment with the dependencies of the project, but without the project itself, like that of a cluster."""

from __future__ import annotations
