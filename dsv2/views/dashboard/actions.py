"""Requests that change a job. Each is logged."""

from __future__ import annotations

import builtins
import logging
import sys
import threading
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dsv2.errors import ConfigurationError
from dsv2.model.error_policy import ErrorPolicy
from dsv2.views.dashboard.jobs import Board, WatchedJob
from dsv2.views.dashboard.responses import job_of, json_response, typed_body

_LOG = logging.getLogger(__name__)


class SavepointBody(msgspec.Struct):
    """The body of a request for a savepoint. ``path``: Its folder."""

    path: Annotated[str, msgspec.Meta(pattern="^[^\0]+$")]


class ReplayBody(msgspec.Struct):
    """The body of a request to process dead letters again. ``letters``: Their ids. None: all new ones."""

    letters: Annotated[list[str], msgspec.Meta(min_length=1)] | None


class PolicyRule(msgspec.Struct):
    """A rule of a policy. ``errors``: The exceptions, as ``ValueError`` or ``module.Class``. Empty: all."""

    action: Literal["fail", "skip", "dead_letter"]
    errors: list[str] = []


class PolicyBody(msgspec.Struct):
    """The body of a request for another error policy.

    Attributes:
        operator: The uid of the operator.
        rules: The rules. Retries stay as they are.
        limit: The number of failures after which the job fails. None: no limit.
    """

    operator: str
    rules: list[PolicyRule]
    limit: Annotated[int, msgspec.Meta(ge=0)] | None = None

    def policy(self) -> ErrorPolicy:
        """Return the policy. Raises ``ConfigurationError`` if a rule is not valid."""
        policy = ErrorPolicy()
        for rule in self.rules:
            policy = getattr(policy, rule.action)(*map(_exception_named, rule.errors))
        return policy if self.limit is None else policy.limit(total=self.limit)


class ActionHandlers:
    """The handlers of requests.

    Args:
        board: The jobs.
        allow_actions: Whether jobs may be changed.
    """

    def __init__(self, board: Board, allow_actions: bool) -> None:
        self._board = board
        self._allow_actions = allow_actions

    async def stop(self, request: Request) -> Response:
        """Stop a job, without waiting for its end."""
        job = self._job(request)
        _log(request, job, "stop")
        threading.Thread(target=job.stop, name="dsv2-dashboard-action", daemon=True).start()
        return json_response({"message": "The job stops after the running micro-batch."}, HTTPStatus.ACCEPTED)

    async def savepoint(self, request: Request) -> Response:
        """Take a savepoint."""
        job = self._job(request)
        path = (await typed_body(request, SavepointBody, '{"path": "the folder of the savepoint"}')).path
        _log(request, job, "savepoint in %s", path)
        written = await run_in_threadpool(job.savepoint, path)
        return json_response({"message": f"The savepoint is in {written}."})

    async def replay(self, request: Request) -> Response:
        """Process dead letters again."""
        job = self._job(request)
        ids = (await typed_body(request, ReplayBody, '{"letters": ["12.0"]}, or {"letters": null} for all')).letters
        _log(request, job, "replay of the dead letters %s", "that are new" if ids is None else ", ".join(ids))
        return json_response({"message": await run_in_threadpool(job.replay, ids)})

    async def policy(self, request: Request) -> Response:
        """Change an error policy."""
        job = self._job(request)
        shape = '{"operator": "a uid", "rules": [{"action": "skip", "errors": ["ValueError"]}]}'
        asked = await typed_body(request, PolicyBody, shape)
        try:
            policy = asked.policy()
        except ConfigurationError as error:
            raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from error
        _log(request, job, "error policy of %s: %s", asked.operator, asked.rules)
        return json_response({"message": await run_in_threadpool(job.change_policy, asked.operator, policy)})

    def _job(self, request: Request) -> WatchedJob:
        if not self._allow_actions:
            raise HTTPException(HTTPStatus.FORBIDDEN, "This dashboard was started without allow_actions.")
        return job_of(self._board, request)


def _log(request: Request, job: WatchedJob, action: str, *details: object) -> None:
    client = "unknown" if request.client is None else request.client.host
    _LOG.warning(f"Job %r, requested by %s: {action}", job.record.snapshot().name, client, *details)


def _exception_named(name: str) -> Any:
    """Return a class that the program has imported."""
    module, _, own_name = name.rpartition(".")
    found = getattr(sys.modules.get(module) if module else builtins, own_name, None)
    if found is None:
        raise ConfigurationError(f"The program has not imported an exception {name!r}.")
    return found
