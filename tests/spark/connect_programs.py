"""A client of Spark Connect that runs conformance programs side by side, in one job.

The arguments are the address of the server, a folder, the mode, and names of programs. Prints what is wrong with each
as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from runtime_spark import SparkRuntime
from tests.conformance.harness import CONNECT_SETTING, STREAMING_CONNECT_SETTING, run_programs
from tests.conformance.programs import PROGRAMS


def main(url: str, folder: str, mode: str, *names: str) -> None:
    """Run the programs."""
    programs = [program for program in PROGRAMS if program.name in names]
    spark = SparkSession.builder.remote(url).getOrCreate()
    setting = STREAMING_CONNECT_SETTING if mode == "streaming" else CONNECT_SETTING
    checkpoint = str(Path(folder, "checkpoint")) if setting.needs_checkpoint else None
    runs = run_programs(programs, setting, SparkRuntime(spark), Path(folder), checkpoint)
    wrong = dict.fromkeys(names, "")
    for program in programs:
        run = runs[program.name]
        try:
            program.check(run)
            run.expect_counts()
            run.expect_ended_watermarks()
        except AssertionError as error:
            wrong[program.name] = str(error) or "an assertion without a text"
    print(json.dumps(wrong))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
