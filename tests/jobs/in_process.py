"""Where tasks of tests run: in their process, one after the other."""

from jobs.spark.executors import InProcess


def in_process() -> InProcess:
    """For jobs whose tasks are plain functions."""
    return InProcess(2)
