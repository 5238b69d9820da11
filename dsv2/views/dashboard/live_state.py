"""Requests for the state of a running job."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, NoReturn

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dsv2.errors import ConfigurationError
from dsv2.jobs.live_state import ARROW_STREAM, DEFAULT_ROWS, MOST_ROWS, QueryableJob, StateQuery, StateResult
from dsv2.views.dashboard.jobs import Board
from dsv2.views.dashboard.responses import job_of, json_response, typed_body

_MOST_DIGITS = 9


class QueryBody(msgspec.Struct):
    """The body of a query. ``query``: SQL. ``limit``: The maximum number of rows."""

    query: str
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_ROWS)] = DEFAULT_ROWS


class StateHandlers:
    """The handlers of requests. One at a time searches a state, so that the job has most of the time.

    Args:
        board: The jobs.
        has_token: Whether the server requires a token. Without one, requests for state are refused.
    """

    def __init__(self, board: Board, *, has_token: bool) -> None:
        self._board = board
        self._has_token = has_token
        self._searching = asyncio.Semaphore(1)

    async def states(self, request: Request) -> Response:
        """Answer with the states of a job that can be read."""
        job = self._queryable(request)
        return json_response(await _answer(job.states))

    async def rows(self, request: Request) -> Response:
        """Answer with rows of a state."""
        job, query = self._queryable(request), _query_of(request)
        if query.key is not None:
            return _result(request, await _answer(lambda: job.read_state(query)))
        async with self._searching:
            return _result(request, await _answer(lambda: job.read_state(query)))

    async def query(self, request: Request) -> Response:
        """Answer with the result of a query in SQL."""
        job = self._queryable(request)
        asked = await typed_body(request, QueryBody, '{"query": "SELECT ...", "limit": 100}')
        async with self._searching:
            return _result(request, await _answer(lambda: job.query_states(asked.query, asked.limit)))

    def _queryable(self, request: Request) -> QueryableJob:
        if not self._has_token:
            raise HTTPException(HTTPStatus.FORBIDDEN, "State requires a token: start this server with one.")
        try:
            return job_of(self._board, request).queryable()
        except ConfigurationError as error:
            raise HTTPException(HTTPStatus.NOT_IMPLEMENTED, str(error)) from error


async def _answer(read: Callable[[], Any]) -> Any:
    try:
        return await run_in_threadpool(read)
    except ConfigurationError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from error


def _result(request: Request, result: StateResult) -> Response:
    if ARROW_STREAM in request.headers.get("accept", ""):
        return Response(result.to_arrow_stream(), media_type=ARROW_STREAM)
    return Response(result.to_json(), media_type="application/json")


def _query_of(request: Request) -> StateQuery:
    given = request.query_params
    for name in ("operator", "state"):
        if name not in given:
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"The query lacks {name!r}.")
    if "key" in given and ("start" in given or "stop" in given):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "Give a key, or the bounds of a range: start and stop.")
    keys = {name: _key(name, given[name]) for name in ("key", "start", "stop") if name in given}
    return StateQuery(given["operator"], given["state"], limit=_limit(given.get("limit")), **keys)


def _key(name: str, text: str) -> Any:
    try:
        key = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        key = None
    if key is None:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f'{name} is a key as JSON, such as 17, "a" or ["a", 17].')
    return key


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_ROWS
    limit = int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 0
    if not 1 <= limit <= MOST_ROWS:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"limit is a whole number from 1 to {MOST_ROWS}.")
    return limit
