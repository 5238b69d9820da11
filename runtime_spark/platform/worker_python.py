"""The Python of the workers of the user's session."""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import SparkSession


def use_this_python(spark: SparkSession) -> None:
    """Let the Python workers of a local session run the Python of this program, instead of any ``python3``.

    Not if the user has set PYSPARK_PYTHON or ``spark.pyspark.python``; and not on a cluster, whose machines may not
    have this Python in the same place.
    """
    context: Any = getattr(spark, "sparkContext", None)
    if context is None or "PYSPARK_PYTHON" in os.environ or not sys.executable:
        return
    if context.master.startswith("local") and context.getConf().get("spark.pyspark.python") is None:
        context.pythonExec = sys.executable
