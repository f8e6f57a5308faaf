"""The Spark session of a job. Its settings are those of conf/spark-defaults.conf, which bootstrap.py passes on."""

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from jobs import PACKAGE
from jobs.console.command_name import command
from jobs.errors import NotSubmittedError
from jobs.spark.run_folder import use_run_folder

TASKS: Final = (".bronze.tasks", ".silver.tasks", ".gold.audit")
"""Modules with tasks, below `jobs`."""


def start_session(job: str, overrides: Mapping[str, str] | None = None, *, wakes_workers: bool = False) -> SparkSession:
    """The session of a job under spark-submit. Raises NotSubmittedError without Delta.

    Even without a Hive metastore Spark needs a folder for its own tables: it gets one in the run's folder. With
    `wakes_workers`, Python workers start while the JVM creates the session.
    """
    folder = use_run_folder() / "warehouse"
    settings = {"spark.app.name": f"groupledger {job}", "spark.sql.warehouse.dir": str(folder), **(overrides or {})}
    if wakes_workers:
        context = SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
        threading.Thread(target=_wake_workers, args=(context,), daemon=True).start()
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    # PySpark logs each failed query with the JVM's whole stack; the job prints one line
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    session = builder.getOrCreate()
    if "DeltaSparkSessionExtension" not in (session.conf.get("spark.sql.extensions", "") or ""):
        session.stop()
        raise NotSubmittedError(f"Spark was started without Delta: start jobs with {command('JOB')}")
    return session


def _wake_workers(context: SparkContext) -> None:
    """Let Python workers load what their tasks need, meanwhile."""
    with suppress(Exception):  # only an optimization: errors of workers are reported by their first task
        core_count = context.defaultParallelism
        context.parallelize(range(core_count), core_count).foreach(_load)


def _load(_: int) -> None:
    for name in TASKS:
        import_module(name, PACKAGE)
