"""The name or source text, and the place, of a callable of the user."""

from __future__ import annotations

import ast
import functools
import gc
import inspect
import linecache
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType

from dsv2.plan_view.model import Code

_MAX_TEXT = 80
_LAMBDA = "<lambda>"
_PARSING = threading.RLock()


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
    """The source of a lambda, or ``lambda`` if it is not available or ambiguous."""
    lines = linecache.getlines(code.co_filename)
    found = [node for node in _lambdas(code.co_filename, "".join(lines)) if node.lineno == code.co_firstlineno]
    if len(found) > 1:
        found = _with_instructions(code, found)
    return " ".join(_source_of(found[0], lines).split()) if found else "lambda"


def _source_of(node: ast.expr, lines: list[str]) -> str:
    """The text of ``node``. ``ast.get_source_segment`` would split the whole file again for each of them."""
    (first, begin), (last, end) = _start(node), _end(node)
    text = [line.encode() for line in lines[first - 1 : last]]  # columns count bytes
    text[-1] = text[-1][:end]
    text[0] = text[0][begin:]
    return b"".join(text).decode()


def _with_instructions(code: CodeType, lambdas: list[ast.Lambda]) -> list[ast.Lambda]:
    """The innermost of ``lambdas`` whose body contains all instructions of ``code``, or none if they have no places."""
    places = [
        ((line, column), (end_line, end_column))
        for line, end_line, column, end_column in code.co_positions()
        if None not in (line, end_line, column, end_column) and (line, column) != (end_line, end_column)
    ]
    if not places:
        return []
    start, end = min(place for place, _ in places), max(place for _, place in places)
    around = [node for node in lambdas if _start(node.body) <= start and end <= _end(node.body)]
    return sorted(around, key=_start)[-1:]


@functools.lru_cache(maxsize=8)
def _lambdas(file: str, source: str) -> tuple[ast.Lambda, ...]:
    """The lambdas in a file. ``source``: Its text, which may have changed since an earlier call."""
    return tuple(_find_lambdas(source))


def _find_lambdas(source: str) -> Iterator[ast.Lambda]:
    try:
        with _PARSING, _without_garbage_collection():
            tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a file that has changed since it was imported, or a notebook's magic command
        return
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Lambda))


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A collection can run Python code, such as a finalizer or another thread.

    If that code calls ``ast.parse`` as well, as formatting a traceback does, Python 3.11 raises a ``SystemError`` here.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _start(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: ast.expr) -> tuple[int, int]:
    assert node.end_lineno is not None  # it was parsed
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
