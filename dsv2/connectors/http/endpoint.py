"""An HTTP endpoint to which a source or a sink sends requests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from msgspec.json import Encoder

from dsv2.base.secrets import ClientOptions, hide
from dsv2.checks.arguments import as_milliseconds, check_whole_number
from dsv2.checks.client_library import require_client_library
from dsv2.errors import ConfigurationError, JobError
from dsv2.sinks.paths import without_password

if TYPE_CHECKING:
    import urllib3

RETRIED = (408, 425, 429, 500, 502, 503, 504)
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 10
_ENCODER = Encoder(decimal_format="string", uuid_format="canonical", order=None)
_SHOWN = 300  # characters of a response


def to_json(record: Any) -> bytes:
    """Encode a value: a tuple with names or a dataclass as an object, other values as they are."""
    return _ENCODER.encode(record._asdict() if hasattr(record, "_asdict") else record)


class Endpoint:
    """An endpoint, with secrets that its ``repr`` hides.

    Args:
        user: The connector, for errors.
        url: The URL, perhaps with a user and a password.
        headers: Headers of each request.
        retries: How often a request is repeated.
        timeout: The time limit for a connection, and for a response.

    Raises:
        ConfigurationError: An argument is invalid, or urllib3 is not installed.
    """

    def __init__(self, user: str, url: str, headers: Mapping[str, str], retries: int, timeout: timedelta) -> None:
        require_client_library("urllib3", "http", user)
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(f"{user} requires a URL with http:// or https://, not {without_password(url)!r}.")
        check_whole_number(retries, "retries", at_least=0)
        self.url = url
        self.retries = retries
        self.timeout_seconds = as_milliseconds(timeout, "timeout", at_least=1) / 1000
        self._headers = headers

    def __repr__(self) -> str:
        return without_password(self.url)

    def pool(self) -> urllib3.PoolManager:
        """Open connections, which repeat requests without an answer or with a transient status."""
        import urllib3

        retry = urllib3.Retry(
            total=self.retries,
            redirect=0,
            raise_on_redirect=False,
            status_forcelist=RETRIED,
            allowed_methods=None,
            backoff_factor=FIRST_PAUSE_SECONDS,
            backoff_max=LONGEST_PAUSE_SECONDS,
            respect_retry_after_header=True,
            raise_on_status=False,
        )
        return urllib3.PoolManager(retries=retry, timeout=self.timeout_seconds, headers=self._all_headers())

    def _all_headers(self) -> Mapping[str, str]:
        from urllib3.util import make_headers

        parts = urlsplit(self.url)
        if parts.username is None:
            return self._headers
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return {"Authorization": make_headers(basic_auth=login)["authorization"], **self._headers}

    def send(
        self, pool: urllib3.PoolManager, who: str, method: str, url: str, body: bytes, headers: Mapping[str, str]
    ) -> bytes:
        """Send a request and return the body of the response.

        Args:
            pool: The connections.
            who: The source or sink, for errors.
            method: The method.
            url: The URL, which is that of the endpoint, perhaps with other parameters.
            body: The body; b"": none.
            headers: Further headers.

        Raises:
            JobError: There is no answer, or its status is 300 or more.
        """
        import urllib3

        try:
            response = pool.request(method, url, body=body or None, headers={**pool.headers, **headers})
        except urllib3.exceptions.HTTPError as error:
            raise JobError(self.redacted(f"{who} cannot send a request: {error}")) from None
        if response.status >= 300:
            text = response.data.decode("utf-8", "replace")[:_SHOWN]
            status = f"{response.status} {response.reason}"
            raise JobError(self.redacted(f"{who}: the endpoint answered with {status}: {text}"))
        return response.data

    def redacted(self, text: str) -> str:
        """Return ``text`` without secrets."""
        secrets = [
            value for name, value in self._all_headers().items() if name.lower() not in ("content-type", "accept")
        ]
        return hide(ClientOptions({"url": self.url}).redacted(text), secrets)
