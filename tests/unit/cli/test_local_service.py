"""``dsv2 run --runtime local`` as a service: its process, its checkpoint without Spark, and the documented files."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from dsv2.base.folders import LocalFolder
from dsv2.cli.configuration import configuration_of
from dsv2.cli.main import new_parser
from dsv2.errors import ConfigurationError
from dsv2.savepoint.tables import rows_in
from dsv2.savepoint.writer import check_unused
from tests import ROOT
from tests.durations import LONG

TEXT = (ROOT / "docs" / "runtimes.md").read_text()

SHOP = """
from dsv2 import ExecutionEnvironment, PrintSink
from dsv2.sources import DataGeneratorSource
from dsv2.testing import Stop, TestSource


def orders(env: ExecutionEnvironment, speed: float = 100) -> None:
    numbers = env.from_source(DataGeneratorSource(abs, records_per_second=speed)).with_uid("in")
    numbers.to_sink(PrintSink()).with_uid("out")


def stops(env: ExecutionEnvironment) -> None:
    env.from_source(TestSource([1, Stop(), 2, Stop()])).with_uid("in").to_sink(PrintSink()).with_uid("out")
"""

WITHOUT_SPARK = """
import sys
for name in ("pyspark", "py4j", "runtime_spark"):
    sys.modules[name] = None
from dsv2.cli import main
code = main(sys.argv[1:])
print(sorted({"numpy", "pandas", "pyarrow"} & sys.modules.keys()), file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of the pipelines."""
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("DSV2_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def block(language: str) -> str:
    """The code block of this language in the document."""
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return str(found)


def lines_until(process: subprocess.Popen[str], text: str) -> Iterator[str]:
    assert process.stderr is not None
    for line in process.stderr:
        yield line
        if text in line:
            return


def readiness(url: str) -> int:
    try:
        return int(urlopen(f"{url}ready").status)
    except HTTPError as error:
        return error.code


def test_service_is_ready_and_stops_with_sigterm() -> None:
    options = "--checkpoint stored --restarts 2 --log-format json --dashboard 127.0.0.1:0"
    command = [sys.executable, "-m", "dsv2", "run", "shop:orders", "--runtime", "local", *options.split()]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        *_, line = lines_until(process, "Dashboard: ")
        url = json.loads(line)["message"].removeprefix("Dashboard: ")
        deadline = time.monotonic() + LONG
        while readiness(url) != 200:
            assert time.monotonic() < deadline
            threading.Event().wait(0.05)
        assert urlopen(f"{url}live").read() == b"ok"
        process.terminate()
        _, err = process.communicate(timeout=LONG)
    assert process.returncode == 0
    records = [json.loads(line) for line in err.splitlines()]
    assert re.match(r"Stopped after micro-batch \d+\. To continue:\n", records[-1]["message"])


def test_checkpoints_need_no_spark() -> None:
    def run(*arguments: str) -> tuple[str, str]:
        command = [sys.executable, "-W", "ignore", "-c", WITHOUT_SPARK, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr.splitlines()[-1]

    assert run("run", "shop:stops", "--runtime", "local", "--checkpoint", "stored")[0].startswith("1\n")
    shown, loaded = run("checkpoint", "show", "stored")
    assert "of the job 'stops' after micro-batch 0" in shown
    assert loaded == "[]", "it is quick"
    assert "The state after micro-batch 0 is complete." in run("checkpoint", "verify", "stored")[0]
    assert run("savepoint", "create", "stored", "saved")[0].startswith("The savepoint is in ")
    options = ["--checkpoint", "other", "--savepoint", "saved"]
    assert run("run", "shop:stops", "--runtime", "local", *options)[0].startswith("2\n")


def test_savepoints_name_the_library_that_they_require(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigurationError, match=re.escape("A savepoint requires pyarrow") + ".*files"):
        check_unused(LocalFolder(str(tmp_path / "saved")))
    with pytest.raises(ConfigurationError, match=re.escape("A savepoint requires pyarrow") + ".*files"):
        next(rows_in(b"", "state.parquet"))


def test_documented_commands_and_file_are_valid(tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    file.write_text(block("toml"))
    unit = dict(re.findall(r"^(\w+)=(.*)$", block("ini"), re.MULTILINE))
    _, *words = shlex.split(unit["ExecStart"].replace("/etc/orders.toml", str(file)))
    configuration = configuration_of(new_parser().parse_args(words))
    assert tomllib.loads(block("toml")).keys() <= {*configuration.__struct_fields__}
    assert (configuration.runtime, configuration.restarts, configuration.log_format) == ("local", 5, "json")
    image = block("dockerfile").replace("\\\n", "")
    _, *words = ast.literal_eval(image.partition("ENTRYPOINT ")[2])
    assert configuration_of(new_parser().parse_args(words)).dashboard == "0.0.0.0:8050"
