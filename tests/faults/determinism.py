"""Runs in a process of its own with given orders of bronze's rows; prints what silver and gold are.

    PYTHONHASHSEED=1 python -m tests.faults.determinism LOGS FOLDER sorted[,reversed][,shuffled] [PARTITIONS,...]

A run for each number of partitions and order, one line of JSON each. Partitions are those of Spark's shuffles, and its
default parallelism: into so many tasks replay and audit divide the log partitions. Without them no Spark is started,
and the tasks run in this process.
"""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
import pyarrow as pa

from jobs.bronze.capture import capture
from jobs.delta.commits import OVERWRITE
from jobs.delta.part_files import write_part
from jobs.delta.table_files import read_file
from jobs.delta.warehouse import Warehouse
from jobs.gold.audit import audit
from jobs.settings import Settings, load_settings
from jobs.silver.hot_logs import CutRule
from jobs.silver.replay import replay
from jobs.spark.executors import Executor, SparkExecutor
from jobs.spark.session import start_session
from schemas.tables.bronze import RECORD_BATCHES
from schemas.tables.gold import GOLD_TABLES
from schemas.tables.silver import SILVER_TABLES
from tests.faults.harness import CLUSTER, digests
from tests.jobs.in_process import in_process
from tests.spark_defaults import spark_defaults

STARTED_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS: Final = ("sorted", "reversed", "shuffled")
APP_ID: Final = "determinism"
FILES: Final = 3
"""Bronze has so many files of each log partition that has as many batches."""


def reorder(warehouse: Warehouse, order: str) -> None:
    """Rewrite bronze: each log partition in several files, rows and files in an order of their own."""
    random = Random(order)
    target = warehouse.target(RECORD_BATCHES)
    written = []
    for file in warehouse.files(RECORD_BATCHES):
        rows = read_file(file, RECORD_BATCHES, list(RECORD_BATCHES.column_names)).sort_by("base_offset")
        places = list(range(rows.num_rows))
        if order == "shuffled":
            random.shuffle(places)
        elif order == "reversed":
            places.reverse()
        for part in np.array_split(places, min(FILES, len(places))):
            written.append(write_part(target, rows.take(pa.array(part, pa.int64()))))
    if order == "shuffled":
        random.shuffle(written)
    elif order == "reversed":
        written.reverse()
    warehouse.commit(RECORD_BATCHES, written, app_id=APP_ID, version=0, mode=OVERWRITE)


def run(executor: Executor, settings: Settings, order: str) -> dict[str, list[object]]:
    """Capture, replay and audit; the digests of silver and gold."""
    warehouse = Warehouse(settings.warehouse)
    capture(executor, warehouse, settings, capture_id="c", captured_at=STARTED_AT)
    reorder(warehouse, order)
    replay(
        executor,
        warehouse,
        cluster_id=CLUSTER,
        run_id="r",
        started_at=STARTED_AT,
        batch_decompressed_bytes_max=settings.batch_decompressed_bytes_max,
        cut_records_min=settings.cut_records_min,
    )
    audit(
        executor,
        warehouse,
        cluster_id=CLUSTER,
        inference=settings.inference,
        run_id="r",
        started_at=STARTED_AT,
        cut=CutRule(settings.cut_records_min, settings.batch_decompressed_bytes_max),
    )
    found = digests(warehouse)
    return {table.full_name: list(found[table.full_name]) for table in (*SILVER_TABLES, *GOLD_TABLES)}


def main(logs: str, folder: str, orders: str, partitions: str = "") -> None:
    """Run, and print the digests of each run."""
    for count in partitions.split(","):
        session = start_session("determinism", conf_of(count, folder)) if count else None
        executor = in_process() if session is None else SparkExecutor(session)
        try:
            for order in orders.split(","):
                warehouse = str(Path(folder) / f"warehouse-{count}-{order}")
                options = {"warehouse": warehouse, "cluster_id": CLUSTER, "segments": (logs,)}
                print(json.dumps(run(executor, load_settings(options, environment={}), order)), flush=True)
        finally:
            if session is not None:
                session.stop()


def conf_of(partitions: str, folder: str) -> dict[str, str]:
    """Spark's settings of a run."""
    return spark_defaults() | {
        "spark.master": "local[2,3]",
        "spark.sql.shuffle.partitions": partitions,
        "spark.default.parallelism": partitions,
        "spark.local.dir": folder,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
