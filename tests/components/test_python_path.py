"""Python processes of Spark import the installed PySpark, not the zip file that Spark puts first on their path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from components.python_path import python_path


def test_zip_files_of_pyspark_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    for name in ("pyspark.zip", "py4j-0.1-src.zip"):
        with ZipFile(tmp_path / "lib" / name, "w") as file:
            file.writestr("pyspark/__init__.py", "raise ImportError('the zip file')")
            file.writestr("py4j/__init__.py", "raise ImportError('the zip file')")
    (tmp_path / "mine.py").touch()
    zips = [str(tmp_path / "lib" / name) for name in ("pyspark.zip", "py4j-0.1-src.zip")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*zips, python_path(tmp_path)])}
    program = "import mine, py4j, components; print(py4j.__file__)"
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert ".zip" not in run.stdout
