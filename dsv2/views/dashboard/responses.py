"""Requests and responses of the application: JSON, errors, and the job in a path."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from dsv2.views.dashboard.jobs import Board, WatchedJob

B = TypeVar("B", bound=msgspec.Struct)

_LARGEST_BODY = 10_000
_BODY_SECONDS = 10.0  # in which the body of a request must arrive


def json_response(value: object, status: int = HTTPStatus.OK) -> Response:
    """Return a value as JSON."""
    return Response(encoded(value), status, media_type="application/json")


def encoded(value: object) -> bytes:
    """Return a value as JSON. Lone surrogates in records and errors become escapes."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(msgspec.to_builtins(value)))


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_encodable(name): _encodable(part) for name, part in value.items()}
    return list(map(_encodable, value)) if isinstance(value, list | tuple) else value


async def http_error(request: Request, error: Exception) -> Response:
    """Answer with the status of an error."""
    assert isinstance(error, HTTPException)
    return json_response({"message": error.detail}, error.status_code)


async def own_error(request: Request, error: Exception) -> Response:
    """Answer with an error of dsv2 or of the file system."""
    return json_response({"message": str(error)}, HTTPStatus.CONFLICT)


def job_of(board: Board, request: Request) -> WatchedJob:
    """Return the job in the path of a request."""
    job = board.jobs.get(request.path_params["job"])
    if job is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "There is no such job.")
    return job


async def _body_of(request: Request) -> bytes:
    """Return the body of a request."""
    body = b""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > _LARGEST_BODY:
                    raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    except (TimeoutError, ClientDisconnect):
        raise HTTPException(HTTPStatus.REQUEST_TIMEOUT) from None
    return body


async def typed_body(request: Request, kind: type[B], shape: str) -> B:
    """Return the body of a request. ``shape``: An example, for the error."""
    body = await _body_of(request)
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:  # the latter: nested too deeply
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"The body is {shape}.") from error
