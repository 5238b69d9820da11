"""Converters between plain values and values of the standard library, numpy, pandas, Arrow and Spark."""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from itertools import chain
from operator import attrgetter
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from dsv2.errors import CorruptDataError, SerializationError
from dsv2.runtime.serde.nodes import ATOMIC


@dataclass(frozen=True, slots=True)
class Converter:
    """Converts objects of one class.

    Attributes:
        name: Identifies the converter in bytes.
        take_apart: Converts an object to plain values.
        build: Creates an equal object from them.
        mutable: Whether the identity of objects matters.
        any_parts: Whether ``build`` accepts any values. If False, it only receives values of built-in types, because
            other values could run code of their own.
    """

    name: str
    take_apart: Callable[[Any], Any]
    build: Callable[[Any], Any]
    mutable: bool = False
    any_parts: bool = False

    def build_all(self, parts: list[Any]) -> list[Any]:
        """Build an object from each of ``parts``. Raises ``CorruptDataError``, or any error of ``build``."""
        if not self.any_parts:
            _check_parts(parts)
        return list(map(self.build, parts))


def _check_parts(parts: Iterable[Any]) -> None:
    kinds = set(map(type, parts))
    if kinds <= ATOMIC:
        return
    if not all(kind in _PARTS or issubclass(kind, type) for kind in kinds):
        raise CorruptDataError("A value consists of parts of unexpected types.")
    if tuple in kinds:
        _check_parts(list(chain.from_iterable(part for part in parts if type(part) is tuple)))


@dataclass(frozen=True, slots=True)
class Container:
    """A mutable built-in container. ``blank(header)`` creates an empty one, and ``fill`` adds its members."""

    name: str
    blank: Callable[[Any], Any]
    fill: Callable[[Any, Any], Any]
    is_mapping: bool = False
    header: Callable[[Any], Any] | None = None


def converter_of(kind: type) -> Converter | None:
    """Return the converter for objects of exactly this class; None for containers and data classes."""
    found = _CONVERTERS.get(kind)
    if found is None:
        module = kind.__module__
        package = "columns" if module == "dsv2.arrow.records" else module.partition(".")[0]
        found = _load(package)[0].get(kind) if package in _ELSEWHERE else None
    return found


def converter_named(name: str) -> Converter:
    """Return the converter that bytes name. Raises ``CorruptDataError`` if there is none."""
    package, dot, _ = name.partition(".")
    found = _load(package)[1].get(name) if dot and package in _ELSEWHERE else _BY_NAME.get(name)
    if found is None:
        raise CorruptDataError(f"The bytes name {name!r}, which is not a converter.")
    return found


# --- Containers ------------------------------------------------------------------------------------------------------


def _header_of_default_dict(value: defaultdict[Any, Any]) -> Any:
    if not _may_be_default(value.default_factory):
        raise SerializationError(
            f"A defaultdict of {value.default_factory!r} cannot be serialized. Use a built-in class, a dataclass or a "
            f"NamedTuple as its default factory, or use a dict and setdefault."
        )
    return value.default_factory


def _blank_default_dict(header: Any) -> defaultdict[Any, Any]:
    if not _may_be_default(header):
        raise CorruptDataError(f"{header!r} cannot be the default factory of a dict.")
    return defaultdict(header)


def _may_be_default(factory: Any) -> bool:
    """Return whether bytes may name this factory, which the program calls when a key is missing."""
    if not isinstance(factory, type):
        return factory is None
    is_record = is_dataclass(factory) or (issubclass(factory, tuple) and hasattr(factory, "_fields"))
    return is_record or factory in PLAIN_CLASSES.values()


CONTAINERS: Mapping[type, Container] = {
    list: Container("list", lambda header: [], list.extend),
    dict: Container("dict", lambda header: {}, dict.update, is_mapping=True),
    set: Container("set", lambda header: set(), set.update),
    deque: Container("deque", lambda header: deque(maxlen=header), deque.extend, header=attrgetter("maxlen")),
    OrderedDict: Container("OrderedDict", lambda header: OrderedDict(), OrderedDict.update, is_mapping=True),
    Counter: Container("Counter", lambda header: Counter(), dict.update, is_mapping=True),
    defaultdict: Container(
        "defaultdict", _blank_default_dict, dict.update, is_mapping=True, header=_header_of_default_dict
    ),
}

PLAIN_CLASSES: Mapping[str, type] = {
    f"{kind.__module__}:{kind.__qualname__}": kind
    for kind in (
        *(bool, bytearray, bytes, complex, dict, float, frozenset, int, list, object, set, str, tuple, type(None)),
        *(Counter, OrderedDict, defaultdict, deque, date, datetime, time, timedelta, Decimal, Fraction, UUID),
    )
}
"""Classes that may be values themselves, in addition to those of the job."""


# --- Values of the standard library ----------------------------------------------------------------------------------


def _of_datetime(value: datetime) -> Any:
    if value.tzinfo is None and not value.fold:
        return value.isoformat()
    return value.replace(tzinfo=None).isoformat(), value.fold, value.tzinfo


def _to_datetime(parts: Any) -> datetime:
    if type(parts) is str:
        return datetime.fromisoformat(parts)
    text, fold, zone = parts
    return datetime.fromisoformat(text).replace(fold=fold, tzinfo=_zone(zone))


def _of_time(value: time) -> Any:
    return value.replace(tzinfo=None).isoformat(), value.fold, value.tzinfo


def _to_time(parts: Any) -> time:
    text, fold, zone = parts
    return time.fromisoformat(text).replace(fold=fold, tzinfo=_zone(zone))


def _zone(zone: Any) -> tzinfo | None:
    if zone is not None and type(zone) not in (timezone, ZoneInfo):
        raise CorruptDataError(f"A {type(zone).__qualname__} is not a time zone.")
    return zone  # type: ignore[no-any-return]


def _of_zone_info(value: ZoneInfo) -> str:
    if value.key is None:
        raise SerializationError("A ZoneInfo without a key cannot be serialized. Use ZoneInfo(key).")
    return value.key


def _of_timezone(value: timezone) -> Any:
    offset = value.utcoffset(None)
    return offset, None if value == timezone(offset) and str(value) == str(timezone(offset)) else str(value)


def _to_timezone(parts: Any) -> timezone:
    offset, name = parts
    return timezone(offset) if name is None else timezone(offset, name)


def _to_fraction(parts: Any) -> Fraction:
    # Do not call the class: it computes the greatest common divisor, which is slow for large numbers.
    numerator, denominator = parts
    if type(numerator) is not int or type(denominator) is not int or denominator <= 0:
        raise CorruptDataError("A fraction must consist of two integers.")
    value = object.__new__(Fraction)
    value._numerator, value._denominator = numerator, denominator  # type: ignore[attr-defined]
    return value


def _to_array(parts: Any) -> array[Any]:
    code, data = parts
    if code == "u" or code == "w":
        return array(code, data)
    value: array[Any] = array(code)
    value.frombytes(data)
    return value


def _of_array(value: array[Any]) -> Any:
    return value.typecode, value.tounicode() if value.typecode in "uw" else value.tobytes()


def _exact(kind: type, build: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return ``build`` with a check that its argument has exactly the class ``kind``."""

    def checked(parts: Any) -> Any:
        if type(parts) is not kind:
            raise CorruptDataError(f"A value must be built from {kind.__qualname__}, got {type(parts).__qualname__}.")
        return build(parts)

    return checked


def _numbers(build: Callable[..., Any]) -> Callable[[Any], Any]:
    def checked(parts: Any) -> Any:
        if any(type(part) not in (int, float) for part in parts):
            raise CorruptDataError("A value must be built from numbers.")
        return build(*parts)

    return checked


def _textual(*kinds: type) -> Iterable[tuple[type, Converter]]:
    return ((kind, Converter(kind.__name__, str, _exact(str, kind))) for kind in kinds)


_PARTS = {*ATOMIC, tuple, timedelta, timezone, ZoneInfo}

_CONVERTERS: dict[type, Converter] = {
    datetime: Converter("datetime", _of_datetime, _to_datetime),
    date: Converter("date", date.isoformat, _exact(str, date.fromisoformat)),
    time: Converter("time", _of_time, _to_time),
    timedelta: Converter("timedelta", lambda v: (v.days, v.seconds, v.microseconds), _numbers(timedelta)),
    timezone: Converter("timezone", _of_timezone, _to_timezone),
    ZoneInfo: Converter("ZoneInfo", _of_zone_info, _exact(str, ZoneInfo)),
    Decimal: Converter("Decimal", str, _exact(str, Decimal)),
    Fraction: Converter("Fraction", lambda v: (v.numerator, v.denominator), _to_fraction),
    complex: Converter("complex", lambda v: (v.real, v.imag), _numbers(complex)),
    UUID: Converter("UUID", lambda v: v.bytes, _exact(bytes, lambda data: UUID(bytes=data))),
    range: Converter("range", lambda v: (v.start, v.stop, v.step), _numbers(range)),
    slice: Converter("slice", lambda v: (v.start, v.stop, v.step), lambda parts: slice(*parts)),
    bytearray: Converter("bytearray", bytes, _exact(bytes, bytearray), mutable=True),
    array: Converter("array", _of_array, _to_array, mutable=True),
    **dict(_textual(PosixPath, WindowsPath, PurePosixPath, PureWindowsPath)),
    **dict(_textual(IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network)),
}
_BY_NAME = {converter.name: converter for converter in _CONVERTERS.values()}


# --- Values of packages, which are loaded on first use ---------------------------------------------------------------

_ELSEWHERE: Mapping[str, tuple[str, str]] = {
    "numpy": ("dsv2.runtime.serde.package_values", "of_numpy"),
    "pandas": ("dsv2.runtime.serde.package_values", "of_pandas"),
    "pyarrow": ("dsv2.runtime.serde.package_values", "of_pyarrow"),
    "pyspark": ("dsv2.runtime.serde.package_values", "of_pyspark"),
    "columns": ("dsv2.arrow.converters", "of_columns"),
}
_loaded: dict[str, tuple[dict[type, Converter], dict[str, Converter]]] = {}


def _load(package: str) -> tuple[dict[type, Converter], dict[str, Converter]]:
    if package not in _loaded:
        module, name = _ELSEWHERE[package]
        by_kind: dict[type, Converter] = getattr(import_module(module), name)()
        _loaded[package] = by_kind, {converter.name: converter for converter in by_kind.values()}
    return _loaded[package]
