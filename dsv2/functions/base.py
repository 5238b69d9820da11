"""What all process functions share (Flink ``ProcessFunction``)."""

from __future__ import annotations

from collections.abc import Collection

from dsv2.watermark import WatermarkDeclaration

__all__ = ("ProcessFunction",)


class ProcessFunction:
    """Base of the four kinds of functions; subclass one of those.

    Instance fields are part of the checkpoint: a field that changed since the function was built is kept
    with the subtask's state and is there again in the next micro-batch and after a restart. Fields that
    never change follow the program. Define ``__getstate__`` and ``__setstate__`` to decide for yourself.
    """

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        """The watermarks that this function brings into the job; read once, while the plan is built."""
        return ()

    def close(self) -> None:
        """Release what ``open`` took. Called once, after the last input ended or after a callback failed.

        Nothing can be emitted here. A streaming job that is stopped goes on later: it does not close.
        """
