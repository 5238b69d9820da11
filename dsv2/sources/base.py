"""The base class of all sources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import ClassVar, Generic

from dsv2.base.type_variables import T_co
from dsv2.watermark import WatermarkDeclaration


class BaseSource(ABC, Generic[T_co]):
    """The base class of the sources that ``ExecutionEnvironment.from_source`` accepts."""

    dsv2_refuses_error_policy: ClassVar[str | None] = None
    """The reason why the source cannot have an error policy, as the rest of a sentence. None: it can."""

    dsv2_refuses_samples: ClassVar[str | None] = None
    """The reason why the source cannot be read only to look at its records, as a sentence. None: it can."""

    dsv2_record_type: type | None = None
    """The class of the records, if an argument declares it. None: the class statement may declare it."""

    @property
    def dsv2_why_rows(self) -> str | None:
        """The reason why it reads rows, as the rest of a sentence. Empty: it reads columns. None: not known."""
        return None

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """True if the source is finite."""

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        """Return the declarations of the watermarks that this source emits."""
        return ()
