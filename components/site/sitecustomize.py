"""Removes PySpark's zip files from the import path of a process started with ``components.python_path``.

Spark puts these files first on the path of its Python processes. Modules in them have no bytecode, so each process
would compile PySpark again, which takes a second for every source of a job. Without them, it imports the installed
PySpark.
"""

import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith(("/lib/pyspark.zip", "-src.zip"))]
