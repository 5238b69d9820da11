"""Recognising a key selector: a digest of what it computes, to notice one that now reads another field.

A selector's names, constants, bytecode and captured values go into the digest; its place in the file does not.
Bytecode differs between Python versions, so a digest is only compared with one of the same version.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any

__all__ = ("PYTHON", "fingerprint")

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def fingerprint(selector: Callable[..., Any]) -> str:
    """The digest of ``selector``, as hex."""
    return hashlib.sha256(_describe(selector, set()).encode()).hexdigest()[:32]


def _describe(value: Any, seen: set[int]) -> str:
    if id(value) in seen:
        return "again"
    if isinstance(value, FunctionType):
        seen.add(id(value))
        return _describe_function(value, seen)
    if isinstance(value, MethodType):
        return f"method {_describe(value.__func__, seen)} of {_describe(value.__self__, seen)}"
    if isinstance(value, functools.partial):
        parts = [value.func, *value.args, *(part for item in sorted(value.keywords.items()) for part in item)]
        return f"partial {[_describe(part, seen) for part in parts]}"
    if isinstance(value, type):
        return f"class {value.__module__}.{value.__qualname__}"
    if isinstance(vars(type(value)).get("__call__"), FunctionType):
        seen.add(id(value))
        fields = sorted(getattr(value, "__dict__", {}).items())
        call = _describe(type(value).__call__, seen)
        return f"{_describe(type(value), seen)} {call} {[(name, _describe(field, seen)) for name, field in fields]}"
    has_own_repr = any("__repr__" in vars(kind) for kind in type(value).__mro__[:-1])
    return repr(value) if has_own_repr else _describe(type(value), seen)


def _describe_function(function: FunctionType, seen: set[int]) -> str:
    code = function.__code__
    captured = [_describe(cell.cell_contents, seen) for cell in function.__closure__ or ()]
    helpers = [
        _describe(function.__globals__[name], seen)
        for name in code.co_names
        if isinstance(function.__globals__.get(name), FunctionType | int | float | str | bytes | tuple)
    ]
    defaults = [_describe(default, seen) for default in function.__defaults__ or ()]
    return f"function {_describe_code(code)} {captured} {helpers} {defaults}"


def _describe_code(code: CodeType) -> str:
    constants = [_describe_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants} {code.co_argcount}"
