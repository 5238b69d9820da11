"""The name or source text, and the place, of a callable of the user."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections.abc import Iterator
from types import CodeType, FunctionType

from dsv2.explain.model import Code

__all__ = ("code_of",)

_MAX_TEXT = 80
_LAMBDA = "<lambda>"


def code_of(function: object, version: int | None = None) -> Code:
    """Describe a callable, or an object by its class. ``version``: That of a key selector."""
    return Code(_shortened(_text(function)), _location(function), version)


def _text(function: object) -> str:
    match function:
        case FunctionType():
            return _lambda_text(function.__code__) if function.__name__ == _LAMBDA else function.__qualname__
        case functools.partial():
            return f"partial({_text(function.func)}, ...)"
        case type():
            return function.__qualname__
    if type(function).__module__ == "operator":
        return repr(function).removeprefix("operator.")  # such as itemgetter(0)
    name: object = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__qualname__


def _location(function: object) -> str | None:
    """File and line of a function or method. Classes have none, because finding it would mean to parse their file."""
    if isinstance(function, functools.partial):
        return _location(function.func)
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return f"{code.co_filename}:{code.co_firstlineno}" if isinstance(code, CodeType) else None


def _lambda_text(code: CodeType) -> str:
    """The source of a lambda, or ``lambda`` if it is not available."""
    lines = linecache.getlines(code.co_filename)
    found = [node for node in _lambdas(code.co_filename, "".join(lines)) if node.lineno == code.co_firstlineno]
    if len(found) > 1:  # the body is where the last instructions are
        places = {(start, end, first, last) for start, end, first, last in code.co_positions()}
        found = [node for node in found if _place(node.body) in places] or found
    text = ast.get_source_segment("".join(lines), found[0]) if found else None
    return "lambda" if text is None else " ".join(text.split())


@functools.lru_cache(maxsize=8)
def _lambdas(file: str, source: str) -> tuple[ast.Lambda, ...]:
    """The lambdas in a file. ``source``: Its text, which may have changed since an earlier call."""
    return tuple(_find_lambdas(source))


def _find_lambdas(source: str) -> Iterator[ast.Lambda]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a file that has changed since it was imported, or a notebook's magic command
        return
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Lambda))


def _place(node: ast.expr) -> tuple[int, int | None, int, int | None]:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
