"""Watermarks about one key, such as: the session of user 7 is complete.

A per-key watermark is emitted with a key, travels with the records of that key, and is handled by the next keyed
functions, in the partition of the key.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, Protocol, get_origin

from typing_extensions import TypeVar

from dsv2.checks.arguments import is_whole_number
from dsv2.errors import InvalidWatermarkError, WatermarkDeclarationError
from dsv2.watermark.declaration import WatermarkDeclaration
from dsv2.watermark.watermark import Watermark

V = TypeVar("V", default=Any)
V_co = TypeVar("V_co", covariant=True, default=Any)
K = TypeVar("K", bound=Hashable, default=Any)
K_co = TypeVar("K_co", covariant=True, bound=Hashable, default=Any)


@dataclass(frozen=True, slots=True)
class KeyedWatermark(Watermark[V_co], Generic[V_co, K_co]):
    """A watermark about one key. Create it with ``new_watermark`` of its declaration.

    Attributes:
        key: The key.
    """

    key: K_co


@dataclass(frozen=True, slots=True)
class KeyedWatermarkDeclaration(WatermarkDeclaration[V], Generic[V, K]):
    """Declares watermarks with values of type ``V`` about keys of type ``K``. Created by ``per_key`` of a builder."""

    def new_watermark(self, value: V, *, key: K) -> KeyedWatermark[V, K]:  # type: ignore[override]
        """Create a watermark.

        Args:
            value: The value.
            key: The key that it is about, equal to the key of the records.

        Raises:
            InvalidWatermarkError: ``value`` or ``key`` is not of the declared type.
        """
        value = self.value_type.normalized(value)
        self.check_value(value)
        self.check_key(key)
        return self.watermark_of((key, value))

    def watermark_of(self, value: Any) -> KeyedWatermark[V, K]:
        """Return the watermark with a pair of a key and a value, as it travels. Called by the runtime."""
        key, of_key = value
        return KeyedWatermark(of_key, self.identifier, key)

    def check_key(self, key: object) -> None:
        """Raise ``InvalidWatermarkError`` unless ``key`` is of the declared type."""
        kind: Any = self.scope.key_type
        if not isinstance(key, kind) or (kind is int and not is_whole_number(key)):
            raise InvalidWatermarkError(
                f"Watermark {self.identifier!r} was declared with per_key({kind.__name__}): the key must be of this "
                f"type, not {key!r}."
            )

    @property
    def watermark_class(self) -> type[KeyedWatermark[V, K]]:
        """The class of the watermarks."""
        return KeyedWatermark


class Buildable(Protocol[V]):
    """The builder of a declaration, when all else is set."""

    def build(self) -> WatermarkDeclaration[V]:
        """Build the declaration."""


class PerKeyBuilder(Generic[V, K]):
    """The last step of the declaration of a per-key watermark."""

    def __init__(self, builder: Buildable[V], key_type: type[K]) -> None:
        kind = get_origin(key_type) or key_type
        if not isinstance(kind, type) or kind.__hash__ is None or kind is type(None):
            raise WatermarkDeclarationError(
                f"per_key takes the type of the keys, such as int, str or a frozen dataclass, not {key_type!r}."
            )
        self._builder = builder
        self._key_type: type = kind  # without type arguments, which are for type checkers

    def build(self) -> KeyedWatermarkDeclaration[V, K]:
        """Build the declaration.

        Raises:
            WatermarkDeclarationError: The settings contradict each other. For example, the watermark is aligned.
        """
        plain = self._builder.build()
        parts = {one.name: getattr(plain, one.name) for one in fields(WatermarkDeclaration)}
        return KeyedWatermarkDeclaration(**{**parts, "scope": replace(plain.scope, key_type=self._key_type)})
