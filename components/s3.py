"""A local server with the interface of S3: moto, a Python package, in a process of its own. It keeps data in memory."""

from __future__ import annotations

import sys
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from components.server import MissingComponentError, Server, free_ports

if TYPE_CHECKING:
    import pyarrow.fs as pafs

__all__ = ("S3Server",)

_KEY = "dsv2"  # moto accepts any
_REGION = "us-east-1"


class S3Server:
    """A server with one bucket, ``BUCKET``.

    Args:
        folder: The folder of its log.

    Attributes:
        endpoint: Its address.

    Raises:
        MissingComponentError: moto is not installed.
    """

    BUCKET = "tests"

    def __init__(self, folder: Path) -> None:
        if find_spec("moto") is None:
            raise MissingComponentError("An S3 server requires moto: pip install --group test.")
        (port,) = free_ports(1)
        self.endpoint = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self._server = Server(command, port, folder / "s3.log")

    def start(self) -> None:
        """Start the server and create the bucket."""
        self._server.start()
        request = urllib.request.Request(f"{self.endpoint}/{self.BUCKET}", method="PUT")
        request.add_header("Authorization", f"AWS4-HMAC-SHA256 Credential={_KEY}/20240101/{_REGION}/s3/aws4_request")
        urllib.request.urlopen(request, timeout=180).close()  # it imports its parts now

    def stop(self) -> None:
        """Stop the server. Its data are lost."""
        self._server.stop()

    @property
    def log_tail(self) -> str:
        """The last requests."""
        return self._server.log_tail

    def in_arrow(self) -> pafs.FileSystem:
        """Return the server as a file system of Arrow."""
        import pyarrow.fs as pafs

        return pafs.S3FileSystem(
            access_key=_KEY,
            secret_key=_KEY,
            region=_REGION,
            endpoint_override=self.endpoint,
            allow_bucket_creation=True,
            connect_timeout=60,
            request_timeout=60,
        )

    def in_environment(self) -> dict[str, str]:
        """Return environment variables with which Arrow uses the server for ``s3://tests/...``."""
        keys = {"AWS_ACCESS_KEY_ID": _KEY, "AWS_SECRET_ACCESS_KEY": _KEY}
        return {**keys, "AWS_ENDPOINT_URL": self.endpoint, "AWS_DEFAULT_REGION": _REGION}
