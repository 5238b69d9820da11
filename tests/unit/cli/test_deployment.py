"""Deployment: manifests are valid, the upgrade by savepoint runs, and so do the DAG and the asset."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from components.server import free_ports
from dsv2.cli import main
from dsv2.cli.configuration import configuration_of
from dsv2.cli.main import new_parser
from dsv2.errors import ConfigurationError
from dsv2.views.dashboard import Dashboard
from dsv2.views.dashboard.service import PROBES
from tests import ROOT
from tests.durations import LONG
from tests.fake_kubectl import FakeCluster, documents

KUBERNETES = ROOT / "docs/assets/kubernetes"
ORDERS = (KUBERNETES / "orders.yaml").read_text(encoding="utf-8")
FILES = [KUBERNETES / "orders.yaml", KUBERNETES / "spark.yaml"]


def pods(file: Path) -> list[dict[str, Any]]:
    templates = (one["spec"].get("template") for one in documents(file.read_text(encoding="utf-8")) if "spec" in one)
    return [template["spec"] for template in templates if template]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_probes_and_ports(file: Path) -> None:
    (pod,) = pods(file)
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert [probe["path"].partition("?")[0] for probe in probes] == ["/live", "/live", "/ready"]
    assert {probe["path"].partition("?")[0] for probe in probes} == {*PROBES}
    assert {ports[probe["port"]] for probe in probes} == {8050}
    assert pod["terminationGracePeriodSeconds"] >= 120


def test_configuration_and_secret_of_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_kind = {one["kind"]: one for one in documents(ORDERS)}
    (name, text), *others = by_kind["ConfigMap"]["data"].items()
    assert not others
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    ((container,),) = (pod["containers"] for pod in pods(KUBERNETES / "orders.yaml"))
    for one in container["env"]:
        monkeypatch.setenv(one["name"], one["value"])
    words = [str(file) if word == f"/etc/orders/{name}" else word for word in container["command"][1:]]
    configuration = configuration_of(new_parser().parse_args(words))
    assert (configuration.runtime, configuration.checkpoint) == ("local", "/data/checkpoint")
    assert str(configuration.dashboard).endswith(f":{container['ports'][0]['containerPort']}")
    (secret,) = documents((KUBERNETES / "secret.yaml").read_text(encoding="utf-8"))
    assert container["envFrom"] == [{"secretRef": {"name": secret["metadata"]["name"]}}]
    with pytest.raises(ConfigurationError, match="at least 16 letters"):
        Dashboard.at("0.0.0.0:8050", secret["stringData"]["DSV2_DASHBOARD_TOKEN"])
    claims = [one["metadata"]["name"] for one in by_kind["StatefulSet"]["spec"]["volumeClaimTemplates"]]
    script = (KUBERNETES / "upgrade.sh").read_text(encoding="utf-8")
    assert re.findall(r"claimName: (\S+)-orders-0", script) == claims


PROGRAM = """
from collections.abc import Collection
from typing import Any

from dsv2 import ExecutionEnvironment, OneInputStreamProcessFunction, PrintSink, StateDeclarations
from dsv2.sources import DataGeneratorSource

COUNT = StateDeclarations.value_state("count", int, default=0)


class Count(OneInputStreamProcessFunction[int, str]):
    def uses_states(self) -> Collection[Any]:
        return [COUNT]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)
        output.collect(f"VERSION {count.value()}")


def orders(env: ExecutionEnvironment) -> None:
    numbers = env.from_source(DataGeneratorSource(abs, records_per_second=200)).with_uid("in").with_parallelism(1)
    counts = numbers.key_by(lambda number: 0).process(Count()).with_uid("count").with_parallelism(1)
    counts.to_sink(PrintSink()).with_uid("out").with_parallelism(1)
"""
VERSIONS = {"1": PROGRAM.replace("VERSION", "one"), "2": PROGRAM.replace("VERSION", "two"), "3": "broken = 1 / 0"}


@pytest.mark.nightly  # starts ten processes
def test_upgrade_by_savepoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tag, program in VERSIONS.items():
        package = tmp_path / "images" / tag / "shop"
        package.mkdir(parents=True)
        (package / "jobs.py").write_text(program, encoding="utf-8")
    (tmp_path / "bin").mkdir()
    kubectl = tmp_path / "bin/kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.fake_kubectl "$@"\n', encoding="utf-8")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{kubectl.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("FAKE_CLUSTER", str(tmp_path))
    (port,) = free_ports(1)
    cluster = FakeCluster(tmp_path)
    cluster.create(ORDERS, port)
    cluster.call(["scale", "statefulset/orders", "--replicas=1"])
    try:
        cluster.call(["rollout", "status", "statefulset/orders"])
        upgraded = upgrade("2")
        assert upgraded.returncode == 0
        assert re.search(r"DSV2_CHECKPOINT: /data/\d+/checkpoint, DSV2_SAVEPOINT: /data/\d+/savepoint", upgraded.stdout)
        failed = upgrade("3")
        assert failed.returncode == 1
        assert "orders:3 failed. registry.example.com/orders:2 continues." in failed.stderr
    finally:
        cluster.call(["scale", "statefulset/orders", "--replicas=0"])
        cluster.call(["wait", "--for=delete", "pod/orders-0"])
    first, second = (counts(tmp_path / "images" / tag / "out") for tag in ("1", "2"))
    assert {version for version, _ in first} == {"one"}
    assert {version for version, _ in second} == {"two"}
    numbers = [int(count) for _, count in (*first, *second)]
    assert numbers == [*range(1, len(numbers) + 1)], "nothing is lost or doubled, in either direction"
    assert len(list((tmp_path / "data").glob("*/savepoint"))) == 2


def upgrade(tag: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(KUBERNETES / "upgrade.sh"), f"registry.example.com/orders:{tag}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)


def counts(out: Path) -> list[tuple[str, str]]:
    return re.findall(r"^(\w+) (\d+)$", out.read_text(encoding="utf-8"), re.MULTILINE)


SCHEDULERS = {"airflow": "apache-airflow==3.3.*", "dagster": "dagster==1.13.*"}
MORE = '{"product": "tea", "amount": 4}\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new project, whose virtual environment has dsv2."""
    monkeypatch.chdir(tmp_path)
    assert main(["new", "shop"]) == 0
    folder = tmp_path / "shop"
    command = folder / "venv/bin/dsv2"
    command.parent.mkdir(parents=True)
    text = f'#!/bin/sh\nPYTHONPATH={ROOT}:. exec {sys.executable} -m dsv2 "$@"\n'
    command.write_text(text, encoding="utf-8")
    command.chmod(0o755)
    return folder


@pytest.mark.nightly  # installs the scheduler
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_schedulers_run_what_has_arrived(scheduler: str, project: Path, tmp_path: Path) -> None:
    given = os.environ.get(f"DSV2_TEST_{scheduler.upper()}")  # the folder of an environment that has it
    folder = Path(given) if given else tmp_path / "scheduler"
    if not given:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "-q", SCHEDULERS[scheduler]], check=True)
    file = ROOT / f"docs/assets/orchestration/{scheduler}_orders.py"
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "HOME": str(home),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(file.parent),
        "DAGSTER_HOME": str(home),
        "SHOP_PROJECT": str(project),
    }

    def run(*command: str) -> None:
        done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    if scheduler == "airflow":
        run("airflow", "db", "migrate")
    for day, (arrived, expected) in enumerate([("", {"tea": 3, "coffee": 5}), (MORE, {"tea": 7, "coffee": 5})], 1):
        (project / f"data/orders/{day}.json").write_text(arrived, encoding="utf-8")
        if scheduler == "airflow":
            run("airflow", "dags", "test", "orders", f"2026-01-0{day}")
        else:
            run("dagster", "asset", "materialize", "--select", "totals", "-f", str(file))
        assert totals_in(project / "data/totals") == expected


def totals_in(folder: Path) -> dict[str, int]:
    tables = [import_module("pyarrow.parquet").read_table(file) for file in folder.glob("*.parquet")]
    amounts: dict[str, int] = {}
    for row in (row for table in tables for row in table.to_pylist()):
        amounts[row["product"]] = max(row["amount"], amounts.get(row["product"], 0))
    return amounts
