"""The probes of service managers, and the metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from dsv2.views.dashboard.jobs import Board

PROBES: Final = ("/live", "/ready")
"""The paths that need no token, because service managers have none. Their answers name jobs only."""

_LONGEST_BATCH = timedelta(minutes=10)


class ServiceHandlers:
    """The handlers of requests by service managers and monitoring. ``board``: The jobs."""

    def __init__(self, board: Board) -> None:
        self._board = board

    async def live(self, request: Request) -> Response:
        """Answer 503 if a micro-batch has run longer than ``seconds`` of the query."""
        try:
            limit = timedelta(seconds=float(request.query_params.get("seconds", _LONGEST_BATCH.total_seconds())))
        except (ValueError, OverflowError):
            raise HTTPException(HTTPStatus.BAD_REQUEST, "seconds is a number.") from None
        return _answer(job.stuck_for(limit) for job in self._board.jobs.values())

    async def ready(self, request: Request) -> Response:
        """Answer 503 if a job has not completed a micro-batch since its start or restart, or has failed."""
        jobs = self._board.jobs.values()
        return _answer((job.unready() for job in jobs) if jobs else iter(["No job has started."]))

    def exposition(self, request: Request) -> Response:
        """Return the metrics of the jobs of this process."""
        if self._board.metrics is None:
            raise HTTPException(HTTPStatus.NOT_IMPLEMENTED, "Metrics need: pip install 'dsv2[metrics]'")
        data, kind = self._board.metrics.exposition(request.headers.get("accept", ""))
        return Response(data, headers={"Content-Type": kind})


def _answer(problems: Iterator[str]) -> Response:
    found = [problem for problem in problems if problem]
    if found:
        return PlainTextResponse("\n".join(found), HTTPStatus.SERVICE_UNAVAILABLE)
    return PlainTextResponse("ok")
