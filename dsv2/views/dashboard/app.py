"""The application: the page, its data, and the actions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dsv2.errors import Dsv2Error
from dsv2.jobs.dashboard_settings import Dashboard
from dsv2.version import __version__
from dsv2.views.dashboard.actions import ActionHandlers
from dsv2.views.dashboard.jobs import Board
from dsv2.views.dashboard.letters import last_letters
from dsv2.views.dashboard.live_state import StateHandlers
from dsv2.views.dashboard.pages import history_page, job_line, operator_page, plan_page, state_page
from dsv2.views.dashboard.responses import encoded, http_error, job_of, json_response, own_error
from dsv2.views.dashboard.security import Guard
from dsv2.views.dashboard.service import ServiceHandlers
from dsv2.views.dashboard.watermarks import watermark_page
from dsv2.views.explain.svg_parts import STYLE

_TYPES: Final = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "json": "application/json",
    "svg": "image/svg+xml",
}
_DESCRIPTION: Final = "openapi.json"  # of the requests for programs
_LOOK_SECONDS = 0.5  # how often an open page looks for changes
_ALIVE_SECONDS = 15.0  # how often it is written to otherwise, to find out whether it is still there
_MOST_STREAMS = 128  # of events: one for each open page
_MOST_STREAMS_OF_CLIENT = 32


def application(board: Board, settings: Dashboard, port: int) -> ASGIApp:
    """Return the application.

    Args:
        board: The jobs.
        settings: The settings, with the token if one is required.
        port: The port of the server.
    """
    handlers = _Handlers(board, settings.allow_actions)
    service = ServiceHandlers(board)
    actions = ActionHandlers(board, settings.allow_actions)
    states = StateHandlers(board, has_token=settings.token is not None)
    app = Starlette(
        routes=[
            Route("/", handlers.page),
            Route("/live", service.live),
            Route("/ready", service.ready),
            Route("/metrics", service.exposition),
            Route("/static/{name}", handlers.static),
            Route("/api/events", handlers.events),
            Route("/api/openapi.json", handlers.description),
            Route("/api/jobs", handlers.jobs),
            Route("/api/jobs/{job}", handlers.state),
            Route("/api/jobs/{job}/plan", handlers.plan),
            Route("/api/jobs/{job}/history", handlers.history),
            Route("/api/jobs/{job}/operator", handlers.operator),
            Route("/api/jobs/{job}/watermarks", handlers.watermarks),
            Route("/api/jobs/{job}/letters", handlers.letters),
            Route("/api/jobs/{job}/configuration", handlers.configuration),
            Route("/api/jobs/{job}/states", states.states),
            Route("/api/jobs/{job}/rows", states.rows),
            Route("/api/jobs/{job}/sql", states.query, methods=["POST"]),
            Route("/api/jobs/{job}/stop", actions.stop, methods=["POST"]),
            Route("/api/jobs/{job}/savepoint", actions.savepoint, methods=["POST"]),
            Route("/api/jobs/{job}/replay", actions.replay, methods=["POST"]),
            Route("/api/jobs/{job}/error-policy", actions.policy, methods=["POST"]),
        ],
        exception_handlers={HTTPException: http_error, Dsv2Error: own_error, OSError: own_error},
    )
    return Guard(app, settings, port)


class _Handlers:
    """The handlers of requests. Everything that may read files runs in a thread of the server."""

    def __init__(self, board: Board, allow_actions: bool) -> None:
        self._board = board
        self._allow_actions = allow_actions
        self._streams = Counter[str]()
        self._pages = {
            entry.name: entry.read_bytes()
            for entry in files("dsv2.views.dashboard").joinpath("static").iterdir()
            if entry.name.rpartition(".")[2] in _TYPES
        }
        self._pages["graph.css"] = STYLE.encode()
        self._pages[_DESCRIPTION] = self._pages[_DESCRIPTION].replace(b"VERSION", __version__.encode())

    async def page(self, request: Request) -> Response:
        return self._file("index.html")

    async def static(self, request: Request) -> Response:
        return self._file(request.path_params["name"])

    def _file(self, name: str) -> Response:
        if name not in self._pages:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return Response(self._pages[name], media_type=_TYPES[name.rpartition(".")[2]])

    async def description(self, request: Request) -> Response:
        return self._file(_DESCRIPTION)

    async def jobs(self, request: Request) -> Response:
        return json_response(self._lines())

    def _lines(self) -> list[Any]:
        return [job_line(one, job) for one, job in self._board.jobs.items()]

    async def events(self, request: Request) -> Response:
        client = "" if request.client is None else request.client.host
        if self._streams[client] >= _MOST_STREAMS_OF_CLIENT or self._streams.total() >= _MOST_STREAMS:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "Too many pages of this dashboard are open.")
        return _EventStream(self._changes(request), client, self._streams)

    async def _changes(self, request: Request) -> AsyncIterator[bytes]:
        """The list of jobs with their revisions, whenever it changes. The page then fetches what it shows.

        So a slow page skips revisions, and nothing waits for it.
        """
        sent, silent = b"", 0.0
        while not (self._board.is_closing or await request.is_disconnected()):
            await run_in_threadpool(self._refresh)
            lines = encoded(self._lines())
            if lines != sent:
                sent, silent = lines, 0.0
                yield b"event: jobs\ndata: " + lines + b"\n\n"
            elif silent >= _ALIVE_SECONDS:
                silent = 0.0
                yield b": still there\n\n"
            await asyncio.sleep(_LOOK_SECONDS)
            silent += _LOOK_SECONDS

    def _refresh(self) -> None:
        for job in self._board.jobs.values():
            job.refresh()

    async def state(self, request: Request) -> Response:
        job = job_of(self._board, request)
        await run_in_threadpool(job.refresh)
        return json_response(state_page(job.record.snapshot(), job.actions if self._allow_actions else ()))

    async def plan(self, request: Request) -> Response:
        view = job_of(self._board, request).record.snapshot().plan
        return json_response(None if view is None else await run_in_threadpool(plan_page, view))

    async def history(self, request: Request) -> Response:
        try:
            after = int(request.query_params.get("after", "-1"))
        except ValueError:  # also if it has thousands of digits
            raise HTTPException(HTTPStatus.BAD_REQUEST, "after is the number of a micro-batch.") from None
        return json_response(history_page(job_of(self._board, request).record.snapshot().history, after))

    async def operator(self, request: Request) -> Response:
        snapshot = job_of(self._board, request).record.snapshot()
        uid = request.query_params.get("uid", "")
        operator = None if snapshot.progress is None else snapshot.progress.operators.get(uid)
        return json_response(None if operator is None else operator_page(operator))

    async def watermarks(self, request: Request) -> Response:
        snapshot = job_of(self._board, request).record.snapshot()
        identifier = request.query_params.get("identifier", "")
        return json_response(await run_in_threadpool(watermark_page, snapshot, identifier))

    async def letters(self, request: Request) -> Response:
        job = job_of(self._board, request)
        return json_response(await run_in_threadpool(lambda: last_letters(job.letters_folder())))

    async def configuration(self, request: Request) -> Response:
        return json_response(job_of(self._board, request).record.snapshot().configuration)


class _EventStream(StreamingResponse):
    """A stream of events that is counted while it is sent."""

    def __init__(self, content: AsyncIterator[bytes], client: str, streams: Counter[str]) -> None:
        super().__init__(content, media_type="text/event-stream")
        self._client, self._streams = client, streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._streams[self._client] += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams[self._client] -= 1
            self._streams += Counter()  # without those that are 0
