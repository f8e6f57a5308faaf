"""Let a JVM do what every run begins with, so that it leaves its classes behind: `python -m jobs.spark.class_archive`.

spark-submit.sh starts it so once a JVM, with -XX:ArchiveClassesAtExit. At its end the JVM writes what it has read,
parsed and verified of Spark's ten thousand classes into a file; the JVMs of later runs map that into memory.
"""

from typing import Any, Final

from pyspark import SparkContext

from jobs.spark.session import start_session
from jobs.spark.tasks import run_tasks

WRITING_SECONDS_MAX: Final = 300


def load_classes() -> None:
    """A session, tasks in Python workers, and a query; returns when the JVM has ended.

    Exits with its code where it failed: another JVM would die of a file that is cut off.
    """
    session = start_session("class archive")
    run_tasks(session, abs, (1, 2))
    session.range(2).selectExpr("sum(id)").collect()
    gateway: Any = SparkContext._gateway
    session.stop()
    gateway.shutdown()
    # it ends with its standard input, and then writes
    gateway.proc.stdin.close()
    code: int = gateway.proc.wait(WRITING_SECONDS_MAX)
    if code:
        raise SystemExit(code)


if __name__ == "__main__":
    load_classes()
