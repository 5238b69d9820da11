"""A server of Spark Connect on this machine, from the installed PySpark. Clients need the extra ``connect``."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from components.python_path import python_path
from components.server import MissingComponentError, Server, free_ports

__all__ = ("ConnectServer",)

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer:
    """A server with two cores. Its Python workers import what this process imports.

    Args:
        folder: The folder of its log and its files.

    Attributes:
        url: The address for ``SparkSession.builder.remote``.

    Raises:
        MissingComponentError: A package of the client is missing.
    """

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        missing = [name for name in ("grpc", "grpc_status", "zstandard") if find_spec(name) is None]
        if missing:
            raise MissingComponentError(f"Spark Connect requires {', '.join(missing)}: pip install 'dsv2[connect]'.")
        import pyspark

        (port,) = free_ports(1)
        self.url = f"sc://127.0.0.1:{port}"
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            "spark.local.dir": str(folder / "local"),
            "spark.network.timeout": "1h",  # a busy machine does not lose its only executor
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
        environment = {
            "PYTHONPATH": python_path(*filter(None, sys.path)),
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        submit = Path(pyspark.__file__).with_name("bin") / "spark-submit"
        confs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        variables = [f"{name}={value}" for name, value in environment.items()]
        command = ["env", *variables, str(submit), "--master", "local[2]", "--class", _SERVER, *confs]
        self._server = Server(command, port, folder / "connect.log")

    def start(self) -> None:
        """Start the server and wait until it listens."""
        self._server.start()

    def stop(self) -> None:
        """Stop the server."""
        self._server.stop()

    def kill(self) -> None:
        """Kill the server and its Python processes."""
        self._server.kill()

    @property
    def log_tail(self) -> str:
        """The last lines of the log."""
        return self._server.log_tail
