"""The API in a user's Spark, against what Spark alone takes: to shuffle and sort the same records, and to write the
same rows. Prints seconds, and bytes of the rows by codec. 10 million commits take 3 GB in a temporary folder.

    PYTHONPATH=. .venv/bin/python -m tests.benchmarks.own_spark [COMMITS]
"""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own documentation has it)

import groupledger
from schemas.consumer_offsets import TOPIC

GROUP_COUNT: Final = 2000
LOG_PARTITIONS: Final = 50
FILE_COMMITS: Final = 500_000
BEGIN_MS: Final = 1_763_700_000_000
KEY: Final = [("version", ">i2"), ("size", ">i2"), ("group", "S10"), ("after", ">i2"), ("topic", "S9"), ("of", ">i4")]
VALUE: Final = [("version", ">i2"), ("offset", ">i8"), ("epoch", ">i4"), ("metadata", ">i2"), ("at", ">i8")]
CODECS: Final = ("lz4", "snappy", "zstd")


def write_records(folder: Path, count: int) -> None:
    """Raw records of commits as Spark's Kafka source gives them: of 2,000 groups with 12 partitions, in turn."""
    folder.mkdir()
    for first in range(0, count, FILE_COMMITS):
        number = np.arange(first, min(first + FILE_COMMITS, count))
        group = number % GROUP_COUNT
        at = BEGIN_MS + number // 10
        key, value = np.zeros(len(number), KEY), np.zeros(len(number), VALUE)
        key["version"], key["size"], key["after"] = 1, 10, 9
        key["group"], key["topic"] = np.char.mod(b"group-%04d", group), np.char.mod(b"topic-%03d", group % 1000)
        key["of"] = number // GROUP_COUNT % 12
        value["version"], value["offset"], value["epoch"], value["at"] = 3, number // GROUP_COUNT * 7, -1, at
        columns = {
            "key": binary(key),
            "value": binary(value),
            "topic": pa.repeat(pa.scalar(TOPIC), len(number)),
            "partition": pa.array((group % LOG_PARTITIONS).astype(np.int32)),
            "offset": pa.array(number // LOG_PARTITIONS),
            "timestamp": pa.array(at * 1000, pa.timestamp("us", "UTC")),
        }
        pq.write_table(pa.table(columns), folder / f"{first:010d}.parquet")


def binary(rows: np.ndarray[Any, Any]) -> pa.Array:
    """Rows of one size as bytes."""
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.dtype.itemsize
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(rows.tobytes())])


def measured(name: str, action: Callable[[], object]) -> float:
    """Seconds of an action, printed."""
    begun_s = time.monotonic()
    action()
    used_s = time.monotonic() - begun_s
    print(f"{name}: {used_s:.1f} s", flush=True)
    return used_s


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.parquet"))


def measure(spark: SparkSession, folder: Path, count: int) -> Mapping[str, float]:
    """Seconds, and bytes by codec."""
    write_records(folder / "raw", count)
    records = spark.read.parquet(f"{folder}/raw")

    def written(frame: DataFrame, name: str, **options: str) -> Callable[[], None]:
        return lambda: frame.write.options(**options).parquet(f"{folder}/{name}")

    def shuffled(frame: DataFrame) -> DataFrame:
        keyed = frame.withColumn("group_id", F.substring("key", 5, 10).cast("string"))
        return keyed.repartition("partition", "group_id").sortWithinPartitions("partition", "group_id", "offset")

    few = records.where("offset < 100")
    measured("warm", written(groupledger.replay_groups(few).commits, "warm"))
    found = {"api": measured("API", written(groupledger.replay_groups(records).commits, "commits"))}
    sorted_ = shuffled(records).write.format("noop").mode("overwrite")
    found["shuffle"] = measured("Spark: shuffle and sort", sorted_.save)
    rows = spark.read.parquet(f"{folder}/commits")
    found["write"] = measured("Spark: write the rows", written(rows, "again"))
    found["state"] = measured("API: the state", written(groupledger.replay_groups(records).state, "state"))
    for codec in CODECS:
        written(rows, codec, compression="lz4_raw" if codec == "lz4" else codec)()
        found[codec] = bytes_of(folder / codec)
    return found


def main(count: int) -> None:
    """Measure once, with two cores."""
    with TemporaryDirectory() as folder:
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "4g")
            .config("spark.local.dir", folder)
            .config("spark.sql.shuffle.partitions", "8")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        found = measure(spark, Path(folder), count)
        spark.stop()
    print(f"API against Spark alone: {found['api'] / (found['shuffle'] + found['write']):.2f}")
    print(f"the state besides: {found['state'] / found['api']:.2f}")
    print(", ".join(f"{codec}: {found[codec] / found['lz4']:.2f} of lz4" for codec in CODECS))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
