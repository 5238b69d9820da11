"""Recognising a key selector: a digest of what it computes, to notice one that now reads another field.

A selector's names, constants, bytecode and captured values go into the digest; its place in the file does not.
Bytecode differs between Python versions, so a digest is only compared with one of the same version.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

__all__ = ("PYTHON", "fingerprint")

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in the default repr; another one in every process

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
    if isinstance(value, BuiltinMethodType):
        return f"method {value.__name__} of {_describe(value.__self__, seen)}"
    if isinstance(value, functools.partial):
        return f"partial {_describe((value.func, value.args, value.keywords), seen)}"
    if isinstance(value, CodeType):
        return _describe_code(value, seen)
    if isinstance(value, type):
        return f"class {value.__module__}.{value.__qualname__}"
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, list | tuple):
        return f"{_describe(type(value), seen)} {[_describe(item, seen) for item in value]}"
    if isinstance(value, set | frozenset):  # in an order of its own in every process
        return f"{_describe(type(value), seen)} {sorted(_describe(item, seen) for item in value)}"
    if isinstance(value, dict):
        return f"{_describe(type(value), seen)} {sorted(_describe(item, seen) for item in value.items())}"
    return _describe_object(value, seen)


def _describe_object(value: Any, seen: set[int]) -> str:
    call = inspect.getattr_static(type(value), "__call__", None)
    is_callable = isinstance(call, FunctionType)
    if not is_callable and any("__repr__" in vars(kind) for kind in type(value).__mro__[:-1]):
        return _ADDRESS.sub("", repr(value))
    seen.add(id(value))
    parts = (type(value), call if is_callable else None, object.__getstate__(value))
    return f"object {_describe(parts, seen)}"


def _describe_function(function: FunctionType, seen: set[int]) -> str:
    captured = [_describe(cell.cell_contents, seen) for cell in function.__closure__ or ()]
    helpers = [
        _describe(function.__globals__[name], seen)
        for name in _global_names(function.__code__)
        if _is_constant(function.__globals__.get(name))
    ]
    defaults = _describe((function.__defaults__, function.__kwdefaults__), seen)
    return f"function {_describe_code(function.__code__, seen)} {captured} {helpers} {defaults}"


def _is_constant(value: Any) -> bool:
    # Whatever else a module holds may change while it runs.
    return callable(value) or isinstance(value, int | float | str | bytes | tuple | frozenset)


def _global_names(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
        elif isinstance(instruction.argval, CodeType):  # a comprehension, an inner function
            yield from _global_names(instruction.argval)


def _describe_code(code: CodeType, seen: set[int]) -> str:
    # Those that are used: the docstring is not.
    used = [instruction.argval for instruction in dis.get_instructions(code) if instruction.opcode in dis.hasconst]
    constants = [_describe(constant, seen) for constant in used]
    return f"{code.co_code.hex()} {code.co_names} {constants} {code.co_argcount}"
