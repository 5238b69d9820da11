"""Access to a dashboard: checks of each request, before the application sees it."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dsv2.jobs.dashboard_settings import Dashboard, is_loopback
from dsv2.views.dashboard.service import PROBES

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""The headers of every response."""

_READS = ("GET", "HEAD")
_NO_TOKEN = (
    "This dashboard requires its token. Open the address that was printed when it started, which ends with "
    "?token=..., or send the header Authorization: Bearer <token>."
)


class Guard:
    """Refuses requests that may not be answered.

    * The Host header must name this machine. Otherwise a web page elsewhere whose name resolves to this address (DNS
      rebinding) could read the dashboard.
    * If there is a token, the request must have it: in a header, in a cookie, or in the address, which sets the cookie.
    * A request that changes something must also come from the page itself (the Origin header), or have the token in a
      header, which another page cannot send.

    Probes are always answered.

    Args:
        app: The application.
        settings: The settings of the dashboard, with the token if one is required.
        port: The port of the server.
    """

    def __init__(self, app: ASGIApp, settings: Dashboard, port: int) -> None:
        self._app = app
        self._token = settings.token
        self._cookie = f"dsv2_dashboard_{port}"  # the cookies of a host are those of all its ports
        self._is_local = is_loopback(settings.host)
        self._names = frozenset(_names_of(settings.host))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        query = QueryParams(scope["query_string"])
        is_probe = scope["path"] in PROBES and scope["method"] in _READS
        refusal = None if is_probe else self._refusal(scope["method"], headers, query)
        sets_cookie = refusal is None and not is_probe and "token" in query and self._token is not None

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    answered[name] = value
                if sets_cookie:
                    answered.append("Set-Cookie", f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict")
            await send(message)

        app: ASGIApp = self._app
        if refusal is not None:
            status, text = refusal
            app = PlainTextResponse(f"{text}\n", status)
        await app(scope, receive, send_guarded)

    def _refusal(self, method: str, headers: Headers, query: QueryParams) -> tuple[HTTPStatus, str] | None:
        host = headers.get("host", "")
        if not self._is_known(host):
            return HTTPStatus.MISDIRECTED_REQUEST, f"The Host header {host!r} is not that of this dashboard."
        in_header = self._is_token(headers.get("authorization", "").removeprefix("Bearer "))
        if self._token is not None and not (
            in_header
            or self._is_token(query.get("token", ""))
            or self._is_token(cookie_parser(headers.get("cookie", "")).get(self._cookie, ""))
        ):
            return HTTPStatus.UNAUTHORIZED, _NO_TOKEN
        own = (f"http://{host}", f"https://{host}")
        if method not in _READS and not in_header and headers.get("origin") not in own:
            return HTTPStatus.FORBIDDEN, "This request does not come from the page of this dashboard."
        return None

    def _is_known(self, host: str) -> bool:
        name = _without_port(host).lower()
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self._is_local

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())


def _names_of(host: str) -> Iterable[str]:
    yield "localhost"
    yield host.lower()
    if not is_loopback(host):
        yield socket.gethostname().lower()


def _without_port(host: str) -> str:
    if host.startswith("["):  # an IPv6 address
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
