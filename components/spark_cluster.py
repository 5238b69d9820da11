"""A standalone Spark cluster on this machine, from pip's PySpark: a master and workers in processes of their own.

``python -m components.spark_cluster`` (``./run cluster``) runs a cluster until Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from components.server import Server, free_ports

__all__ = ("SparkCluster", "spark_home")

_HOST = "127.0.0.1"
_PACKAGE = "org.apache.spark.deploy"
_NOT_INHERITED = ("PYTHON", "PYSPARK", "SPARK")  # prefixes: the cluster does not know the project or its Python
_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def spark_home() -> Path:
    """Return the folder of the installed PySpark, which contains all of Spark."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RuntimeError("PySpark is not installed. Install it with: pip install 'dsv2[spark]'")
    return Path(spec.origin).parent


class SparkCluster:
    """A master and workers. Executors get the environment of the workers, which has no import path for Python.

    Args:
        folder: The folder of logs and working directories.
        workers: The number of workers.
        cores: The number of cores of each worker.
        memory: The memory that executors of a worker can have, such as ``"1g"``.
        port: The port of the master. None (default): a free port.
        web_port: The port of its web page. None (default): a free port.

    Attributes:
        master: The address for ``--master``.
        web_page: The address of the master's web page.
    """

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        *,
        cores: int = 1,
        memory: str = "1g",
        port: int | None = None,
        web_port: int | None = None,
    ) -> None:
        free = free_ports(2 + 2 * workers)
        port, web_port = port or free[0], web_port or free[1]
        self.master = f"spark://{_HOST}:{port}"
        self.web_page = f"http://{_HOST}:{web_port}"
        self._folder = folder
        self._master = self._server("master.Master", port, web_port, "master")
        self._workers = {
            own: self._server(
                "worker.Worker", own, web, f"worker-{own}", "--cores", str(cores), "--memory", memory,
                "--work-dir", str(folder / "work"), self.master,
            )
            for own, web in zip(free[2::2], free[3::2], strict=True)
        }  # fmt: skip

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def workers(self) -> list[int]:
        """The ports of the workers. The command line of an executor contains that of its worker."""
        return [*self._workers]

    def start(self) -> None:
        """Start the master and the workers, and wait until they listen.

        Raises:
            RuntimeError: One of them did not start. The message contains its log.
        """
        try:
            for server in (self._master, *self._workers.values()):
                server.start()
        except RuntimeError:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all processes."""
        for server in (*self._workers.values(), self._master):
            server.stop()

    def kill_worker(self, port: int) -> None:
        """Kill the worker at ``port``, and its executors with it, like a machine that fails."""
        self._workers[port].kill()

    def start_worker(self, port: int) -> None:
        """Start the worker at ``port`` again."""
        self._workers[port].start()

    def wait(self) -> None:
        """Wait until the master exits, or stop all processes on Ctrl-C."""
        self._master.wait()
        self.stop()

    def _server(self, program: str, port: int, web_port: int, name: str, *arguments: str) -> Server:
        home = spark_home()
        settings = {
            "SPARK_HOME": home,
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_LOCAL_DIRS": self._folder / "local",
            "SPARK_CONF_DIR": self._folder / "conf",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _JVM,
        }
        unset = [
            part for variable in sorted(os.environ) if variable.startswith(_NOT_INHERITED) for part in ("-u", variable)
        ]
        address = ["--host", _HOST, "--port", str(port), "--webui-port", str(web_port)]
        command = [str(home / "bin" / "spark-class"), f"{_PACKAGE}.{program}", *address, *arguments]
        environment = ["env", *unset, *(f"{variable}={value}" for variable, value in settings.items())]
        return Server([*environment, *command], port, self._folder / f"{name}.log")


def main() -> None:
    """Run a cluster until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="./run cluster", description="Run a standalone Spark cluster until Ctrl-C.")
    add = parser.add_argument
    add("--workers", type=int, default=2, help="number of workers (2)")
    add("--cores", type=int, default=1, help="cores of each worker (1)")
    add("--memory", default="1g", help="memory for the executors of each worker (1g)")
    add("--port", type=int, default=7077, help="port of the master (7077)")
    add("--web-port", type=int, default=8080, help="port of its web page (8080)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dsv2-cluster-") as folder:
        try:
            cluster = SparkCluster(
                Path(folder),
                options.workers,
                cores=options.cores,
                memory=options.memory,
                port=options.port,
                web_port=options.web_port,
            )
            cluster.start()
        except RuntimeError as error:
            parser.exit(1, f"{error}\n")
        print(f"Spark {cluster.master} has {options.workers} workers: {cluster.web_page}. Press Ctrl-C to stop it.")
        print("Submit a program in another terminal:", flush=True)
        submit = Path(sys.executable).with_name("spark-submit")
        print(
            f"  PYSPARK_PYTHON={sys.executable} {submit} --master {cluster.master} examples/hot_topics.py", flush=True
        )
        cluster.wait()


if __name__ == "__main__":
    main()
