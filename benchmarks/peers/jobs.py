"""All jobs with their contestants and targets."""

from __future__ import annotations

from benchmarks.peers.environments import BYTEWAX, FLINK, PROTOBUF, PYFLINK
from benchmarks.peers.roster import DSV2, LOCAL, PLAIN, TABLES, Contestant, Job, Target

__all__ = ("JOBS",)

JAVA, PYTHON, BYTE, PANDAS, TRANSFORM, SQL = (
    "Flink's Java DataStream V2",
    "PyFlink",
    "Bytewax",
    "applyInPandasWithState",
    "transformWithStateInPandas",
    "Spark SQL",
)

KEPT = "PyFlink with checkpointed heaps"
PICKLING = "a loop that only pickles and unpickles twice"
STORED = "Bytewax with recovery"
KINDS = ("tuple", "dataclass", "dict")
KEYS = (1_000, 50_000, 1_000_000)
SLOW = ((0, 50_000),)
"""PyFlink requires some hundred microseconds per record."""
SLOWER = ((0, 20_000),)
"""PyFlink with large values in state requires one or two milliseconds per record."""
MANY_GROUPS = ((1_000_000, 20_000),)
"""Each group costs some milliseconds in Spark."""
MANY_WINDOWS = ((50_000, 10_000),)
"""Bytewax closes windows key by key, which costs about one millisecond each."""
TRANSFORMED = ((50_000, 100_000), *MANY_GROUPS)
PROCESSES = (1, 2)
"""The numbers of processes of the local runtime."""
_SEVERAL = ", several processes"
IN_PROCESSES = f"{LOCAL}{_SEVERAL}"
LOCAL_TABLES = f"{LOCAL}, on tables"


def _local(what: str = "", program: str = "on_dsv2", kinds: tuple[str, ...] = ("tuple",)) -> tuple[Contestant, ...]:
    """The local runtime. With several processes, subtasks progress independently; watermarks follow whole tables."""
    return tuple(
        Contestant(
            f"{LOCAL}{what}, {number} processes" if number > 1 else f"{LOCAL}{what}",
            f"{LOCAL}{what}{_SEVERAL}" if number > 1 else f"{LOCAL}{what}",
            program,
            parallelism=number,
            mode="local",
            kinds=kinds,
            near=0.1 if number > 1 or what else 0,
        )
        for number in PROCESSES
    )


ON_TABLES = _local(", on tables", "on_tables")


HOT_TOPICS = Job(
    "hot_topics",
    "Hot topics",
    (
        Contestant("plain loop", PLAIN, "plain"),
        Contestant("plain loop, tweets made before", "plain loop, ready", "plain", mode="ready"),
        Contestant("plain loop, as in the document", "plain loop, document", "plain", mode="document"),
        Contestant("dsv2", DSV2, "on_dsv2", parallelism=2, near=0.1),
        Contestant(
            "dsv2, as in the document",
            "dsv2, document",
            "on_dsv2",
            parallelism=2,
            mode="document",
            in_short=False,
            near=0.1,
        ),
        Contestant("dsv2, on tables", TABLES, "on_tables", parallelism=2, near=0.1),
        *_local(),
        *ON_TABLES,
        Contestant("dsv2, on tables, keyed state", TABLES, "on_tables", parallelism=2, mode="state", near=0.1),
        Contestant("Flink Java", JAVA, "HotTopics", FLINK),
        Contestant("Flink Java, parallelism 2", JAVA, "HotTopics", FLINK, parallelism=2, near=0.1),
        Contestant("Flink Java, records copied (its default)", JAVA, "HotTopics", FLINK, mode="copying"),
        Contestant("Flink Java, as in the document", "Flink Java, document", "HotTopics", FLINK, mode="document"),
        Contestant("Bytewax", BYTE, "on_bytewax", BYTEWAX),
        Contestant(STORED, STORED, "on_bytewax", BYTEWAX, mode="recovery"),
        Contestant("PyFlink, thread mode", PYTHON, "on_pyflink", PYFLINK, mode="thread", most=SLOW),
        Contestant("PyFlink, process mode", PYTHON, "on_pyflink", PYFLINK, mode="process", most=SLOW),
        Contestant(
            "PyFlink, thread mode, heaps checkpointed", KEPT, "on_pyflink", PYFLINK, mode="thread state", most=SLOWER
        ),
        Contestant(
            "PyFlink, process mode, heaps checkpointed", KEPT, "on_pyflink", PYFLINK, mode="process state", most=SLOWER
        ),
        Contestant("applyInPandasWithState", PANDAS, "in_pandas", most=MANY_GROUPS),
        Contestant("transformWithStateInPandas", TRANSFORM, "with_transform", PROTOBUF, most=TRANSFORMED),
    ),
    keys=KEYS,
    targets=(
        Target(PLAIN, 1.3, 1_000),
        Target(PLAIN, 0.85, 1_000, ours=LOCAL),
        Target(STORED, 1.3, 1_000, ours=LOCAL),
        Target(PLAIN, 1.3, 1_000, ours=IN_PROCESSES),
        Target(LOCAL, 1.6, 1_000, ours=IN_PROCESSES),
        Target(JAVA, 1.0, 1_000, ours=LOCAL_TABLES),
        Target(JAVA, 1.0, 1_000),
        Target(JAVA, 1.0, 1_000, ours=TABLES),
        Target(BYTE, 1.7, 1_000),
        Target(BYTE, 1.5, 1_000, ours=TABLES),
        Target(KEPT, 30, 1_000),
        Target(PYTHON, 30, 1_000),
        Target(PANDAS, 12, 1_000),
        Target(PANDAS, 150, 50_000),
    ),
    absent=((SQL, "no way to say it: what is hot depends on the tweets before, one by one"),),
)

RUNNING_COUNT = Job(
    "running_count",
    "Running count per key",
    (
        Contestant("plain loop", PLAIN, "plain", kinds=KINDS),
        Contestant("dsv2", DSV2, "on_dsv2", parallelism=2, kinds=KINDS),
        *_local(kinds=KINDS),
        Contestant("dsv2, single events", "dsv2, single", "on_dsv2", parallelism=2, mode="single", in_short=False),
        Contestant("dsv2, on tables", TABLES, "on_tables", parallelism=2),
        *ON_TABLES,
        Contestant("Flink Java", JAVA, "RunningCount", FLINK),
        Contestant("Flink Java, parallelism 2", JAVA, "RunningCount", FLINK, parallelism=2),
        Contestant("Bytewax", BYTE, "on_bytewax", BYTEWAX, kinds=KINDS),
        Contestant(STORED, STORED, "on_bytewax", BYTEWAX, mode="recovery"),
        Contestant("PyFlink, thread mode", PYTHON, "on_pyflink", PYFLINK, mode="thread", most=SLOW, kinds=KINDS),
        Contestant("PyFlink, process mode", PYTHON, "on_pyflink", PYFLINK, mode="process", most=SLOW, kinds=KINDS),
        Contestant("applyInPandasWithState", PANDAS, "in_pandas", most=MANY_GROUPS),
        Contestant("transformWithStateInPandas", TRANSFORM, "with_transform", PROTOBUF, most=TRANSFORMED),
    ),
    keys=KEYS,
    kinds=KINDS,
    targets=(
        Target(PLAIN, 0.6, 1_000),
        Target(PLAIN, 0.6, 1_000, ours=LOCAL),
        Target(STORED, 1.3, 1_000, ours=LOCAL),
        Target(LOCAL, 1.6, 1_000, ours=IN_PROCESSES),
        Target(JAVA, 1.0, 1_000, ours=LOCAL_TABLES),
        Target(BYTE, 1.5, 1_000),
        Target(JAVA, 1.5, 1_000_000, ours=TABLES),
    ),
    absent=((SQL, "no way to say it: a count per key and micro-batch, yes, but not one per event"),),
)

WINDOWS = Job(
    "windows",
    "Tumbling windows in event time",
    (
        Contestant("plain loop", PLAIN, "plain"),
        Contestant("dsv2", DSV2, "on_dsv2", parallelism=2),
        *_local(),
        Contestant("dsv2, on tables", TABLES, "on_tables", parallelism=2),
        *ON_TABLES,
        Contestant("Flink Java", JAVA, "Windows", FLINK),
        Contestant("Flink Java, parallelism 2", JAVA, "Windows", FLINK, parallelism=2),
        Contestant("Bytewax", BYTE, "on_bytewax", BYTEWAX, most=MANY_WINDOWS),
        Contestant("PyFlink, thread mode", PYTHON, "on_pyflink", PYFLINK, mode="thread", most=SLOW),
        Contestant("PyFlink, process mode", PYTHON, "on_pyflink", PYFLINK, mode="process", most=SLOW),
        Contestant(SQL, SQL, "in_sql"),
    ),
    keys=KEYS,
    targets=(Target(PLAIN, 0.3, 50_000), Target(JAVA, 2.0, 50_000, ours=TABLES)),
    absent=(
        (PANDAS, "by hand one would use Spark's own windows"),
        (TRANSFORM, "by hand one would use Spark's own windows"),
    ),
)

PASS_THROUGH = Job(
    "pass_through",
    "Pass-through",
    (
        Contestant("plain loop", PLAIN, "plain", kinds=KINDS),
        Contestant("loop that only pickles and unpickles twice", PICKLING, "plain", mode="ready", kinds=KINDS),
        Contestant("dsv2", DSV2, "on_dsv2", parallelism=2, kinds=KINDS),
        *_local(kinds=KINDS),
        Contestant(
            "dsv2, built-in map", "dsv2, map", "on_dsv2", parallelism=2, mode="map", kinds=KINDS, in_short=False
        ),
        Contestant("Flink Java", JAVA, "PassThrough", FLINK),
        Contestant("Flink Java, shuffled twice, parallelism 2", JAVA, "PassThrough", FLINK, 2, "shuffled"),
        Contestant("Bytewax", BYTE, "on_bytewax", BYTEWAX, kinds=KINDS),
        Contestant("PyFlink, thread mode", PYTHON, "on_pyflink", PYFLINK, mode="thread", most=SLOW, kinds=KINDS),
        Contestant("PyFlink, process mode", PYTHON, "on_pyflink", PYFLINK, mode="process", most=SLOW, kinds=KINDS),
        Contestant("mapInPandas", "mapInPandas", "in_pandas"),
        Contestant(SQL, SQL, "in_sql"),
    ),
    keys=(1_000,),
    kinds=KINDS,
    targets=(Target(PICKLING, 0.5, 1_000, pace=1_000_000),),
    absent=((PANDAS, "there is no state to keep"), (TRANSFORM, "there is no state to keep")),
)

BROADCAST_RULES = Job(
    "broadcast_rules",
    "Broadcast rules",
    (
        Contestant("plain loop", PLAIN, "plain"),
        Contestant("dsv2", DSV2, "on_dsv2", parallelism=2),
        *_local(),
        Contestant("Flink Java", JAVA, "BroadcastRules", FLINK),
        Contestant("Flink Java, parallelism 2", JAVA, "BroadcastRules", FLINK, parallelism=2),
        Contestant("Bytewax", BYTE, "on_bytewax", BYTEWAX),
        Contestant("PyFlink, thread mode", PYTHON, "on_pyflink", PYFLINK, mode="thread", most=SLOW),
        Contestant("PyFlink, process mode", PYTHON, "on_pyflink", PYFLINK, mode="process", most=SLOW),
        Contestant("Spark SQL, rules as a table", SQL, "in_sql"),
    ),
    keys=(1_000,),
    targets=(Target(PLAIN, 0.6, 1_000),),
    absent=(
        (PANDAS, "no way to hand rules to all groups but a join"),
        (TRANSFORM, "no way to hand rules to all groups but a join"),
    ),
)

INTERVAL_JOIN = Job(
    "interval_join",
    "Interval join in event time",
    (
        Contestant("plain loop", PLAIN, "plain"),
        Contestant("dsv2", DSV2, "on_dsv2", parallelism=2),
        *_local(),
        Contestant("Flink Java, first DataStream API", JAVA, "IntervalJoin", FLINK),
        Contestant("Flink Java, first DataStream API, parallelism 2", JAVA, "IntervalJoin", FLINK, parallelism=2),
        Contestant(SQL, SQL, "in_sql"),
    ),
    keys=(50_000, 1_000_000),
    targets=(Target(PLAIN, 0.3, 50_000),),
    absent=(
        (JAVA, "it has no interval join: Flink's first DataStream API takes its place"),
        (PYTHON, "its DataStream API has no interval join"),
        (BYTE, "it has no interval join"),
        (PANDAS, "it has one input; by hand one would use Spark's own join"),
        (TRANSFORM, "it has one input; by hand one would use Spark's own join"),
    ),
)

ALL = (HOT_TOPICS, RUNNING_COUNT, WINDOWS, PASS_THROUGH, BROADCAST_RULES, INTERVAL_JOIN)
JOBS: dict[str, Job] = {job.name: job for job in ALL}
