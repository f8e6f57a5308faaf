"""Which log partitions captures found, and up to when each was read."""

from datetime import timedelta
from typing import NamedTuple

from jobs.bronze.log_ends import LogEnds, keep_log_partitions, log_ends
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from schemas.tables.bronze import LOG_PARTITIONS
from tests.jobs.history import CLUSTER, START, START_MS, write

LOG = "__consumer_offsets"
HOUR_MS = 3_600_000


class Place(NamedTuple):
    """A log partition."""

    topic: str
    partition: int


def captured(partition: int, last_hour: int) -> dict[str, object]:
    """A row of bronze.coverage: ten records, the last one in an hour after the start."""
    times = {"first_timestamp": START, "last_timestamp": START + timedelta(hours=last_hour), "observed_at": START}
    place = {"cluster_id": CLUSTER, "topic": LOG, "partition": partition}
    return place | {"from_offset": 0, "to_offset": 9, "kind": "CAPTURED", "reason": None} | times


def keep(warehouse: Warehouse, hour: int, *, live: int = 0, found: int = 0, said: int | None = None) -> LogEnds:
    """Capture so many log partitions, live or from files, and look."""
    keep_log_partitions(
        ClusterTables(warehouse, CLUSTER),
        found=[Place(LOG, partition) for partition in range(found)],
        live=[Place(LOG, partition) for partition in range(live)],
        said={} if said is None else {LOG: said},
        seen_at=START + timedelta(hours=hour),
    )
    return log_ends(ClusterTables(warehouse, CLUSTER))[LOG]


def test_a_live_log_is_read_up_to_its_capture_and_a_copy_to_its_last_record(warehouse: Warehouse) -> None:
    """Each log partition by itself; a capture of files takes nothing back of what a live one proved."""
    write(warehouse, {"bronze.coverage": [captured(0, 1), captured(1, 2)]})
    ends = keep(warehouse, 50, found=3)
    bounds = {end.partition: end.bound_ms for end in ends.ends.values()}
    assert bounds == {0: START_MS + HOUR_MS, 1: START_MS + 2 * HOUR_MS, 2: None}
    assert (ends.proven_ms, ends.newest_ms, ends.is_count_known) == (None, START_MS + 2 * HOUR_MS, False)
    assert keep(warehouse, 60, live=3).proven_ms == START_MS + 60 * HOUR_MS
    ends = keep(warehouse, 70, found=3)
    assert (ends.proven_ms, ends.newest_ms) == (START_MS + 60 * HOUR_MS, START_MS + 60 * HOUR_MS)
    assert ends.is_count_known
    assert ends.missing == ()
    assert keep(warehouse, 55, live=3).proven_ms == START_MS + 60 * HOUR_MS


def test_how_many_there_are_is_what_was_said_most(warehouse: Warehouse) -> None:
    """By the user or by a live cluster; what is not in any source is missing. Nothing new writes nothing."""
    write(warehouse, {"bronze.coverage": [captured(0, 1), captured(2, 1)]})
    assert keep(warehouse, 1).missing == ()
    assert not keep(warehouse, 1).is_count_known
    assert keep(warehouse, 1, found=1, said=5).missing == (1, 3, 4)
    version = warehouse.version(LOG_PARTITIONS)
    assert keep(warehouse, 2, found=1, said=5).is_count_known
    assert warehouse.version(LOG_PARTITIONS) == version
    assert keep(warehouse, 3, live=4).missing == (4,)
