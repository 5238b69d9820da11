"""The state of the subtasks of a new program from that of the subtasks of an old one, at any parallelism."""

from dsv2.runtime.rescale.snapshots import rescale
from dsv2.runtime.rescale.succession import ProgramSuccession

__all__ = ("ProgramSuccession", "rescale")
