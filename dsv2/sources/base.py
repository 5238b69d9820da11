"""What every source is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Generic, TypeVar

from dsv2.watermark import WatermarkDeclaration

__all__ = ("BaseSource",)

T_co = TypeVar("T_co", covariant=True)


class BaseSource(ABC, Generic[T_co]):
    """Base of everything that ``ExecutionEnvironment.from_source`` takes."""

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """Whether the source ends by itself."""

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        """The watermarks that this source brings into the job."""
        return ()
