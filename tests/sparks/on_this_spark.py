"""Run by the Python of each environment: raw records of all recordings through the API, compared with nightly's tables.

Prints one JSON object: versions, the names of tables that are equal, and of those that are not.
"""

import json
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import groupledger
from groupledger.ledger import KEYS_OF
from groupledger.sparks import collected
from jobs.delta.spark_schemas import spark_schema
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.tables import TABLES
from tests.groupledger import days
from tests.groupledger.whole_logs import whole_logs

LIBRARIES: Final = ("pyspark", "pyarrow", "numpy", "pandas", "numba")
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.session.timeZone": "Asia/Kolkata",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
    "spark.log.level": "ERROR",
}
IN_SQL: Final = """
    SELECT * FROM replay_group(
        TABLE(SELECT *, coordinator_key(key).group_id AS group_id FROM raw_records)
        PARTITION BY (cluster_id, partition, group_id) ORDER BY offset)
"""


def differences(parts: Sequence[DataFrame], expected: pa.Table, left_out: Sequence[str]) -> str | None:
    """How the rows of DataFrames, together, differ from a table of nightly; None: in nothing."""
    columns = [name for name in expected.column_names if name not in left_out]
    schema = pa.schema([expected.schema.field(name).with_nullable(True) for name in columns])
    rows = pa.concat_tables([collected(part.select(*columns)).cast(schema) for part in parts])
    made, wanted = texts(rows), texts(expected.select(columns))
    if made == wanted:
        return None
    others = set(made) ^ set(wanted)
    return f"{len(made)} rows for {len(wanted)}, {len(others)} differ, as {others!s:.400}"


def texts(rows: pa.Table) -> list[str]:
    """Each row as text, in one order; maps have none."""

    def plain(value: Any, type_: pa.DataType) -> Any:
        return sorted(value or ()) if pa.types.is_map(type_) else value

    names = rows.column_names
    return sorted(
        repr([plain(row[name], type_) for name, type_ in zip(names, rows.schema.types, strict=True)])
        for row in rows.to_pylist()
    )


Check = tuple[Sequence[DataFrame], str, Sequence[str]]
"""DataFrames, the table of nightly that they are together, and columns that are not compared."""


def differences_of_days(spark: SparkSession, folder: Path, own: str) -> Iterator[tuple[str, str | None]]:
    """By table, how three days, the second one twice, each from the state of the day before, differ from one replay.
    `own`: the folder with the silver of that."""
    records, topics = (spark.read.parquet(f"{folder}/{name}.parquet") for name in ("records", "silver.topics"))
    place = ["cluster_id", "topic", "partition"]
    ends = records.groupBy(*place).agg((F.max("offset") + 1).alias("end"))
    dated = records.join(ends, place).withColumn("day", F.floor(F.col("offset") * 3 / F.col("end"))).drop("end")
    for replay in (groupledger.replay_groups, groupledger.replay_share_partitions):
        made = days.Days(partial(replay, topics=topics), whole_logs(records.where(F.col("topic").isin(*KEYS_OF))))
        for day in (0, 1, 1, 2):
            made.add(dated.where(F.col("day") == F.lit(day)).drop("day"))
        for name, rows in made.tables.items():
            found = set(days.texts(rows, name)) ^ set(
                days.texts(days.rows_of(spark.read.parquet(f"{own}/{name}")), name)
            )
            yield f"{name} of three days", f"{len(found)} rows differ, as {found!s:.400}" if found else None


def refused(spark: SparkSession, folder: Path) -> Mapping[str, Callable[[], object]]:
    """What must be a RecordsError, by name."""
    records = spark.read.parquet(f"{folder}/records.parquet")
    of_groups = groupledger.replay_groups
    given: Any = {"a path": f"{folder}/records.parquet", "a list": [], "pandas": records.limit(1).toPandas()}
    a_text: Any = "2026-11-21"
    no_silver: Any = records
    other_format = whole_logs(records).withColumn("state_format", F.lit("0.9"))
    nowhere = records.withColumn("offset", F.lit(-1))
    return {
        **{name: partial(of_groups, it) for name, it in given.items()},
        "no offset": partial(of_groups, records.drop("offset")),
        "of another type": partial(of_groups, records.withColumn("offset", F.lit("a"))),
        "gold of records": partial(groupledger.audit_groups, no_silver),
        "a time that is a text": partial(groupledger.read, spark, "gold.rebalances", warehouse=str(folder), at=a_text),
        "a state of another format": lambda: of_groups(records, state=other_format).commits,
        "on_error": lambda: of_groups(nowhere, on_error="raise").commits,
        "what was decoded": partial(groupledger.decode, groupledger.decode(records)),
    }


def checks_of(spark: SparkSession, folder: Path, own: str) -> dict[str, Check]:
    """By name. `own`: a folder to save silver in, from which gold is made."""

    def given(name: str) -> DataFrame:
        return spark.read.parquet(f"{folder}/{name}.parquet")

    records, batches, topics = given("records"), given("bronze.record_batches"), given("silver.topics")
    configs, counts = given("silver.configs"), given("silver.partition_counts")
    state = whole_logs(records)
    groups = groupledger.replay_groups(records, topics=topics, state=state)
    shares = groupledger.replay_share_partitions(records, topics=topics, state=state)
    found: dict[str, Check] = {}
    silver = {}
    for name, frame in {**groups.tables, **shares.tables}.items():
        assert frame.schema == spark_schema(TABLES[name].columns), name
        frame.write.parquet(f"{own}/{name}")
        silver[name] = spark.read.parquet(f"{own}/{name}")
        found[name] = [silver[name]], name, ()
    of_groups = groupledger.audit_groups(
        silver,
        topics=topics,
        configs=configs,
        partition_counts=counts,
        batches=batches,
        coverage=given("bronze.coverage"),
        quarantine=given("bronze.quarantine"),
    )
    of_shares = groupledger.audit_share_partitions(
        silver, groups=silver, topics=topics, configs=configs, batches=batches
    )
    for name, frame in of_groups.tables.items():
        assert frame.schema == spark_schema(TABLES[name].columns), name
        found[name] = [frame], name, ()
    for name, frame in of_shares.tables.items():
        others = [of_groups.tables[name]] if name in of_groups.tables else []
        found[name] = [frame, *others], name, ("is_settled",)  # only a whole log partition tells it
    of_replay = groupledger.audit_groups(
        groups, topics=topics, configs=configs, partition_counts=counts, batches=batches
    )
    found["gold of a replay"] = [of_replay.rebalances], "gold.rebalances", ()
    commits, events = "silver.offset_commits", "silver.group_events"
    in_pandas = groupledger.replay_groups(records, state=state, as_pandas=True)
    found["as_pandas"] = [in_pandas.commits], commits, ()
    found["record batches"] = [groupledger.replay_groups(batches, state=state).commits], commits, ()
    if not spark.version.startswith("3."):
        groupledger.register(spark)
        data = records.where(f"topic = '{OFFSETS_TOPIC}' and not is_control")
        data.createOrReplaceTempView("raw_records")
        found["SQL"] = [spark.sql(IN_SQL)], events, ("cluster_id",)
    return found


def main(folder: Path, mode: str) -> dict[str, Any]:
    """Compare all tables in a session of a mode: classic, or Connect."""
    builder = SparkSession.builder
    builder = builder.remote("local[2]") if mode == "Connect" else builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    failed = {}
    with TemporaryDirectory() as own:
        checks = checks_of(spark, folder, own)
        for name, (parts, table, left_out) in checks.items():
            try:
                difference = differences(parts, pq.read_table(folder / f"{table}.parquet"), left_out)
            except Exception as error:
                difference = f"{type(error).__name__}: {error}"
            if difference is not None:
                failed[name] = difference
        of_days = dict(differences_of_days(spark, folder, own))
        failed |= {name: difference for name, difference in of_days.items() if difference is not None}
    decoded = groupledger.decode(spark.read.parquet(f"{folder}/records.parquet"))
    errors = decoded.where("error is not null and (topic = '__consumer_offsets' or topic = '__share_group_state')")
    if unread := errors.first():
        failed["decode"] = str(unread)
    errors_asked = refused(spark, folder)
    for name, call in errors_asked.items():
        try:
            call()
            failed[name] = "no RecordsError"
        except groupledger.RecordsError:
            pass
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
        "equal": sorted({*checks, *of_days, *errors_asked, "decode"} - failed.keys()),
        "failed": failed,
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2])))
