"""Stands in for kubectl: the pods of orders.yaml are processes of this machine, and its images folders with modules.

The folder in ``FAKE_CLUSTER`` has them: ``images/<tag>``, ``data`` for the volume, and ``cluster.json``.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import kubernetes_validate

_YAML: Any = import_module("yaml")  # has no types


def documents(text: str) -> list[dict[str, Any]]:
    """Return the objects in YAML, after they have been validated."""
    found = list(_YAML.safe_load_all(text))
    for one in found:
        kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)
    return found


class FakeCluster:
    """The cluster in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "cluster.json"

    def create(self, manifest: str, port: int) -> None:
        """Create the objects of orders.yaml, without a pod. ``port``: That of the dashboard on this machine."""
        by_kind = {one["kind"]: one for one in documents(manifest)}
        for name, text in by_kind["ConfigMap"]["data"].items():
            (self._folder / name).write_text(text, encoding="utf-8")
        (container,) = by_kind["StatefulSet"]["spec"]["template"]["spec"]["containers"]
        env = {one["name"]: one["value"] for one in container["env"]}
        self._save({"command": container["command"], "image": container["image"], "env": env, "pid": 0, "port": port})

    def call(self, words: list[str]) -> None:
        """Execute a command."""
        match words:
            case ["get", _, "-o", path]:
                print(self._value(path), end="")
            case ["set", "image", _, given]:
                self._change(image=given.partition("=")[2])
            case ["set", "env", _, *changes]:
                self._set_env(changes)
            case ["scale", _, "--replicas=1"]:
                pod = self._load()
                self._change(pid=self._started(pod["command"], pod["image"], pod["env"], pod["port"]).pid)
            case ["scale", _, "--replicas=0"]:
                if _is_running(self._load()["pid"]):
                    os.kill(self._load()["pid"], signal.SIGTERM)
            case ["wait", "--for=delete", *_]:
                assert not _is_running(self._load()["pid"], 180)
            case ["apply", "-f", "-"]:
                (job,) = documents(sys.stdin.read())
                (container,) = job["spec"]["template"]["spec"]["containers"]
                process = self._started(container["command"], container["image"], {}, 0)
                self._change(job=job["metadata"]["name"], code=process.wait(180))
            case ["wait", "--for=condition=complete", job, _]:
                assert (job, 0) == (f"job/{self._load()['job']}", self._load()["code"])
            case ["rollout", "status", *_]:
                self._await_ready()
            case _:
                raise AssertionError(words)

    def _await_ready(self) -> None:
        pod = self._load()
        while _is_running(pod["pid"]):
            try:
                urlopen(f"http://127.0.0.1:{pod['port']}/ready")
                return
            except (URLError, ConnectionError):
                threading.Event().wait(0.05)
        raise AssertionError("the pod has ended")

    def _started(self, command: list[str], image: str, env: dict[str, str], port: int) -> subprocess.Popen[bytes]:
        folder = self._folder / "images" / image.rpartition(":")[2]
        program, *words = map(self._local, command)
        assert program == "dsv2"
        own = {name: self._local(value) for name, value in env.items()} | {"DSV2_DASHBOARD": f"127.0.0.1:{port}"}
        with (folder / "out").open("ab") as out, (folder / "err").open("ab") as err:
            command = [sys.executable, "-u", "-m", "dsv2", *words]
            environment = {**os.environ, **own}
            return subprocess.Popen(
                command, cwd=folder, env=environment, stdout=out, stderr=err, start_new_session=True
            )

    def _local(self, value: str) -> str:
        for place, own in (("/data/", f"{self._folder}/data/"), ("/etc/orders/", f"{self._folder}/")):
            value = own + value.removeprefix(place) if value.startswith(place) else value
        return value

    def _value(self, path: str) -> str:
        pod = self._load()
        if path.endswith("containers[0].image}"):
            return str(pod["image"])
        (name,) = re.findall(r"@\.name=='(\w+)'", path)
        return str(pod["env"].get(name, ""))

    def _set_env(self, changes: Iterable[str]) -> None:
        env = self._load()["env"]
        for change in changes:
            name, given, value = change.partition("=")
            if given:
                env[name] = value
            else:
                env.pop(name.removesuffix("-"), None)
        self._change(env=env)

    def _change(self, **changes: object) -> None:
        self._save({**self._load(), **changes})

    def _load(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self._file.read_text(encoding="utf-8"))
        return loaded

    def _save(self, state: dict[str, Any]) -> None:
        self._file.write_text(json.dumps(state), encoding="utf-8")


def _is_running(pid: int, seconds: float = 0) -> bool:
    """Return whether a process runs, after at most ``seconds``."""
    if not pid:
        return False
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    ended, _, _ = select.select([process], [], [], seconds)  # also of a process that nothing has waited for
    os.close(process)
    return not ended


if __name__ == "__main__":
    FakeCluster(Path(os.environ["FAKE_CLUSTER"])).call(sys.argv[1:])
