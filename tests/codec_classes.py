"""Classes of values for tests of the codec."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, Flag, IntEnum, StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tweet:
    topic: str
    time: int


@dataclass
class Open:
    anything: Any

    class Shade(Enum):
        DARK = 1


@dataclass(frozen=True)
class Checked:
    number: int
    doubled: int = field(init=False)

    def __post_init__(self) -> None:
        raise AssertionError("a constructor was called")


@dataclass
class Boxed(Generic[T]):
    value: T


@dataclass
class Counted:
    count: int = 0


class Pair(NamedTuple):
    left: Any
    right: Any = None


class PairAndMore(Pair):
    @property
    def both(self) -> Any:
        return self.left, self.right


class Colour(Enum):
    RED = ("red",)
    GREEN = ("green",)


class Access(Flag):
    READ = 1
    WRITE = 2


class Level(IntEnum):
    LOW = 1


class Kind(StrEnum):
    NEW = "new"


class Bag(dict[str, int]):
    """A subclass of a built-in type with an attribute."""

    def __init__(self, **counts: int) -> None:
        super().__init__(counts)
        self.label = "bag"


class Celsius(float):
    pass


class Numbers(list[int]):
    pass


class Plain:
    """Declares no fields."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]


class Slotted:
    __slots__ = ("a", "b")

    def __eq__(self, other: object) -> bool:
        return type(other) is Slotted and [getattr(o, "a", 0) for o in (self, other)] == [1, 1]

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Shadowed:
    """Has a property with the name of a field."""

    size: int


Shadowed.size = property(  # type: ignore[assignment]
    lambda self: vars(self)["size"] * 2, lambda self, size: vars(self).update(size=size)
)


class Property:
    """Its attribute is hidden by a property of the same name."""

    @property
    def size(self) -> int:
        return int(vars(self)["size"]) + 1


CLASSES = [Tweet, Open, Open.Shade, Checked, Boxed, Counted, Pair, PairAndMore, Colour, Access, Level, Kind, Bag]
CLASSES += [Celsius, Numbers, Plain, Slotted, Property, Shadowed]
OWN = Codec(TypeRegistry(CLASSES))
PLAIN = Codec(TypeRegistry())


def roundtrip(codec: Codec, value: Any) -> Any:
    return codec.loads(codec.dumps(value), "test")
