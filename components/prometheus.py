"""A local Prometheus server, from the packages of the system, which scrapes a program on this machine."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from components.server import MissingComponentError, Server, free_ports

__all__ = ("PrometheusServer", "check_rules", "prometheus_program")

_CONFIG = """\
global:
  scrape_interval: {interval}
  scrape_timeout: {interval}
  evaluation_interval: {interval}
rule_files: {rules}
scrape_configs:
  - job_name: dsv2
    static_configs:
      - targets: ["127.0.0.1:{port}"]
"""


def prometheus_program(name: str) -> str:
    """Return the path of ``prometheus`` or ``promtool``.

    Raises:
        MissingComponentError: It is not installed.
    """
    found = shutil.which(name)
    if found is None:
        raise MissingComponentError(
            f"There is no Prometheus server here ({name} is missing). Install it (apt-get install prometheus, "
            f"brew install prometheus), or run ./run test, which installs it."
        )
    return found


def check_rules(rules: Path) -> None:
    """Check a file of alert rules. Raises ``CalledProcessError`` if it is not valid."""
    subprocess.run([prometheus_program("promtool"), "check", "rules", str(rules)], check=True, capture_output=True)


class PrometheusServer:
    """A server that scrapes ``http://127.0.0.1:PORT/metrics``.

    Args:
        folder: The folder of its data, which must contain nothing else.
        scraped_port: The port of the program.
        rules: The file of its alert rules. None (default): there are none.
        interval: How often it scrapes and evaluates the rules, in the notation of Prometheus. Default: ``"400ms"``.

    Raises:
        MissingComponentError: Prometheus is not installed.
    """

    def __init__(self, folder: Path, scraped_port: int, rules: Path | None = None, *, interval: str = "400ms") -> None:
        self.port = free_ports(1)[0]
        config = folder / "prometheus.yml"
        files = json.dumps([] if rules is None else [str(rules)])
        config.write_text(_CONFIG.format(interval=interval, rules=files, port=scraped_port))
        command = [
            prometheus_program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        self._server = Server(command, self.port, folder / "log", is_ready=self._is_ready)

    def start(self) -> None:
        """Start the server and wait until it answers queries."""
        self._server.start()

    def stop(self) -> None:
        """Stop the server."""
        self._server.stop()

    @property
    def log_tail(self) -> str:
        """The last lines of the log."""
        return self._server.log_tail

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and the value of each series of a PromQL expression, now.

        Raises:
            ValueError: The expression is not valid.
        """
        result = self._get(f"query?{urllib.parse.urlencode({'query': expression})}")["result"]
        return [(series["metric"], float(series["value"][1])) for series in result]

    def firing(self) -> set[tuple[str, str]]:
        """Return the name of each alert that fires, and the label ``job_name``."""
        labels: Sequence[dict[str, str]] = [
            alert["labels"] for alert in self._get("alerts")["alerts"] if alert["state"] == "firing"
        ]
        return {(one["alertname"], one.get("job_name", "")) for one in labels}

    def _get(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}") as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{path}: {error.read().decode()}") from error

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready"):
                return True
        except OSError:
            return False
