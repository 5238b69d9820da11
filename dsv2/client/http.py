"""Requests to the server of a job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from dsv2.errors import ConfigurationError, JobError


class JobServer:
    """A server that shows jobs.

    Args:
        url: Its address. The token may be a part of it, as in the address that the server prints.
        token: The token. None: that of the address.
        seconds: How long to wait for an answer.

    Raises:
        ConfigurationError: The address is not one of HTTP, or there is no token.
    """

    def __init__(self, url: str, token: str | None, seconds: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError("The url of a job is the address of its dashboard, such as http://127.0.0.1:8050.")
        found = token or parse_qs(parts.query).get("token", [None])[0]
        if not found:
            raise ConfigurationError("The state of a job requires the token of its dashboard: connect(url, token=...).")
        self._new_connection = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._place = parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._seconds = seconds
        self._headers = {"Authorization": f"Bearer {found}"}
        self.shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        """The address, without secrets."""

    def get(self, path: str, query: Mapping[str, str] | None = None, *, accept: str = "application/json") -> bytes:
        """Return the answer of a request."""
        return self._answer("GET", f"{path}?{urlencode(query)}" if query else path, {"Accept": accept})

    def post(self, path: str, body: object, *, accept: str) -> bytes:
        """Send JSON, and return the answer."""
        return self._answer("POST", path, {"Accept": accept}, json.dumps(body).encode())

    def _answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> bytes:
        """Send a request and return the answer.

        Raises:
            ConfigurationError: The request is refused: there is no such job or state, or the token is another one.
            JobError: The job cannot answer now, or nothing does.
        """
        connection = self._new_connection(*self._place, timeout=self._seconds)
        try:
            connection.request(method, self._prefix + path, body, {**self._headers, **headers})
            response = connection.getresponse()
            content = response.read()
        except (OSError, HTTPException) as error:
            raise JobError(f"{self.shown} does not answer: {error or type(error).__name__}.") from error
        finally:
            connection.close()
        if response.status < HTTPStatus.BAD_REQUEST:
            return content
        kind = JobError if response.status in (HTTPStatus.CONFLICT, HTTPStatus.SERVICE_UNAVAILABLE) else None
        raise (kind or ConfigurationError)(f"{self.shown}: {_message_in(content)}")


def _message_in(body: bytes) -> str:
    text = body.decode(errors="replace").strip()
    try:
        answer: Any = json.loads(text)
    except ValueError:
        return text
    return str(answer.get("message", text)) if isinstance(answer, dict) else text
