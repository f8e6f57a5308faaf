"""A warehouse as large as reports get: one group of many partitions that rebalances and rebalances, a share group that
never rests, and a great many other groups. A pure function of its numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from coordinator_core.bytes.log.chunk import I64
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.warehouse import Warehouse
from schemas.tables.bronze import COVERAGE
from schemas.tables.declare import Table
from schemas.tables.gold import ARCHIVED_RECORDS, COMMIT_ANOMALIES, PARTITION_OWNERS, REBALANCES, REDELIVERIES
from schemas.tables.silver import (
    GROUP_GENERATIONS,
    GROUP_MEMBERS,
    OFFSET_COMMITS,
    SHARE_BATCH_TRANSITIONS,
    SHARE_PARTITION_STATES,
    SHARE_STATE_BATCHES,
)

CLUSTER: Final = "large"
BUSY: Final = "orders-service"
SHARE: Final = "resizers"
START_MS: Final = 1_767_225_600_000
"""2026-01-01."""
REBALANCE_EVERY_MS: Final = 20_000
UNOWNED_MS: Final = 1_500
MEMBERS: Final = 50
"""In the busy group at a time; each rebalance brings another one in the place of one of them."""
OTHER_REBALANCES: Final = 3
CAUSES: Final = (
    ("MEMBER_JOINED", "IN_LOG", "CERTAIN"),
    ("MEMBER_LEFT", "WITHIN_TIMEOUTS", "LIKELY"),
    ("MEMBER_EXPIRED", "SILENT_FOR_SESSION", "GUESS"),
)
AT_A_TIME: Final = 500_000
"""Rows of one write."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large. The busy group moves all of its partitions at each rebalance."""

    partition_count: int = 1_000
    rebalance_count: int = 10_000
    group_count: int = 2_500
    """Of other groups."""
    share_partition_count: int = 20
    delivery_count: int = 100_000
    """Of each share partition."""


class Tables:
    """Tables which are written piece by piece."""

    def __init__(self, root: Path) -> None:
        self.warehouse = Warehouse(str(root))
        self._versions: dict[str, int] = {}

    def add(self, table: Table, count: int, columns: Mapping[str, Any]) -> None:
        """Rows, given by columns or by one value for all rows; columns that are not named are null."""
        arrays = []
        for field in arrow_schema(table):
            value = {"cluster_id": CLUSTER, "is_settled": True, **columns}.get(field.name)
            if pa.types.is_timestamp(field.type) and value is not None:
                value = np.asarray(value) * 1000
            if value is None or isinstance(value, str | bool | int):
                arrays.append(pa.repeat(pa.scalar(value, field.type), count))
            elif isinstance(value, Texts):
                arrays.append(pa.array(value.texts).take(pa.array(value.codes)))
            else:
                arrays.append(pa.array(value).cast(field.type))
        version = self._versions[table.full_name] = self._versions.get(table.full_name, 0) + 1
        rows = pa.Table.from_arrays(arrays, schema=arrow_schema(table))
        self.warehouse.write(table, rows, app_id="large", version=version)


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of few texts."""

    texts: Sequence[str | None]
    codes: I64


def write_large(root: Path, size: Size) -> Warehouse:
    """Write the tables that a report reads."""
    tables = Tables(root)
    _write_busy(tables, size)
    _write_others(tables, size)
    _write_share(tables, size)
    last_ms = START_MS + max(size.rebalance_count * REBALANCE_EVERY_MS, 1)
    captured = {
        "topic": Texts(["__consumer_offsets", "__share_group_state"], np.arange(100) // 50),
        "partition": np.arange(100) % 50,
        "from_offset": 0,
        "to_offset": np.full(100, 10 * size.rebalance_count),
        "kind": "CAPTURED",
        "first_timestamp": np.full(100, START_MS),
        "last_timestamp": np.full(100, last_ms),
        "observed_at": np.full(100, last_ms),
    }
    tables.add(COVERAGE, 100, captured)
    return tables.warehouse


def _write_busy(tables: Tables, size: Size) -> None:
    count = size.rebalance_count
    generations = np.arange(count)
    at_ms = START_MS + generations * REBALANCE_EVERY_MS
    slots = generations % MEMBERS
    group = {"group_id": BUSY, "group_type": "CLASSIC", "incarnation": 0, "log_partition": 7}
    cause = generations * 7919 % 11 % len(CAUSES)
    names = [
        f"{BUSY}-{number}-0f8fad5b-d9cb-469f-a165-{number * 7919 % 16**12:012x}" for number in range(count + MEMBERS)
    ]
    hosts = [f"/10.0.{number // 250 % 250}.{number % 250}" for number in range(len(names))]
    came = np.array([[names[number]] for number in generations + MEMBERS], object)
    went = np.array([[names[number]] for number in generations], object)
    tables.add(
        REBALANCES,
        count,
        {
            **group,
            "to_generation": generations + 1,
            "from_generation": generations,
            "started_at": at_ms,
            "completed_at": at_ms + UNOWNED_MS,
            "duration_ms": np.full(count, UNOWNED_MS),
            "cause": Texts([text for text, *_ in CAUSES], cause),
            "method": Texts([text for _, text, _ in CAUSES], cause),
            "confidence": Texts([text for *_, text in CAUSES], cause),
            "members_joined": pa.array(came.tolist(), pa.list_(pa.string())),
            "members_left": pa.array(went.tolist(), pa.list_(pa.string())),
            "member_count": MEMBERS,
            "partitions_total": size.partition_count,
            "partitions_moved": size.partition_count,
            "stickiness": np.zeros(count),
            "unowned_likely_ms": np.full(count, UNOWNED_MS * size.partition_count),
            "in_storm": generations % 1000 < 100,
        },
    )
    members = np.arange(len(names))
    since = np.maximum(START_MS + (members - MEMBERS) * REBALANCE_EVERY_MS, START_MS)
    until = START_MS + members * REBALANCE_EVERY_MS
    membership = {
        **group,
        "member_id": names,
        "client_id": [f"{BUSY}-{number % MEMBERS}" for number in members.tolist()],
        "client_host": hosts,
        "from_log_offset": members * 10,
        "valid_from": since,
        "valid_to": until,
        "from_generation": np.maximum(members - MEMBERS, 0),
        "to_generation": members,
        "ended_by": "LEFT_OR_EXPIRED",
    }
    tables.add(GROUP_MEMBERS, len(names), membership)
    tables.add(
        GROUP_GENERATIONS,
        count,
        {
            **group,
            "generation": generations + 1,
            "from_log_offset": generations * 10,
            "valid_from": at_ms,
            "state": "Stable",
        },
    )
    at_once = max(AT_A_TIME // size.partition_count, 1)
    for first in range(0, count, at_once):
        rows = np.repeat(generations[first : first + at_once], size.partition_count)
        partitions = np.tile(np.arange(size.partition_count), len(rows) // size.partition_count)
        # who is in the slot that has the partition: the last one that came into it
        slot = (partitions + rows) % MEMBERS
        owner = rows + MEMBERS - (slots[rows] - slot) % MEMBERS
        tables.add(
            PARTITION_OWNERS,
            len(rows),
            {
                **group,
                "topic": Texts(["orders", "payments"], partitions % 2),
                "partition": partitions // 2,
                "from_log_offset": rows * 10,
                "member_id": Texts(names, owner),
                "client_id": Texts([f"{BUSY}-{number}" for number in range(MEMBERS)], owner % MEMBERS),
                "client_host": Texts(hosts, owner),
                "from_generation": rows + 1,
                "to_generation": rows + 1,
                "valid_from": at_ms[rows] + UNOWNED_MS,
                "valid_to": at_ms[rows] + REBALANCE_EVERY_MS,
                "gap_before_ms": np.full(len(rows), UNOWNED_MS),
                "is_double": False,
            },
        )
    odd = np.arange(count * 2)
    tables.add(
        COMMIT_ANOMALIES,
        len(odd),
        {
            **group,
            "topic": "orders",
            "partition": odd % 500,
            "log_offset": odd,
            "at": START_MS + odd * REBALANCE_EVERY_MS // 2,
            "kind": Texts(["REWIND", "DELETED"], odd % 2),
            "from_offset": odd * 5,
            "to_offset": odd * 5 - 5,
            "delta": np.full(len(odd), -5),
            "method": "IN_LOG",
            "confidence": "CERTAIN",
        },
    )
    tables.add(
        OFFSET_COMMITS,
        count,
        {
            "group_id": BUSY,
            "topic": "orders",
            "partition": generations % 500,
            "log_partition": 7,
            "log_offset": generations,
            "committed_offset": generations * 10,
            "outcome": "APPLIED",
            "applied_log_offset": generations,
            "applied_at": at_ms,
            "change": "ADVANCE",
            "delta": np.full(count, 10),
        },
    )


def _write_others(tables: Tables, size: Size) -> None:
    count = size.group_count * OTHER_REBALANCES
    numbers = np.arange(count)
    groups = Texts([f"group-{number:05}" for number in range(size.group_count)], numbers // OTHER_REBALANCES)
    at_ms = START_MS + numbers * 977 % max(size.rebalance_count * REBALANCE_EVERY_MS, 1)
    known = {"group_id": groups, "group_type": "CONSUMER", "incarnation": 0, "log_partition": numbers % 50}
    reported = {"cause": "MEMBER_JOINED", "method": "IN_LOG", "confidence": "CERTAIN"}
    order = {"to_generation": numbers % OTHER_REBALANCES, "started_at": at_ms, "unowned_likely_ms": numbers}
    tables.add(REBALANCES, count, {**known, **reported, **order})
    generation = {"generation": numbers % OTHER_REBALANCES, "from_log_offset": numbers, "valid_from": at_ms}
    tables.add(GROUP_GENERATIONS, count, {**known, **generation, "state": "Stable"})


def _write_share(tables: Tables, size: Size) -> None:
    count = size.delivery_count
    numbers = np.arange(count)
    at_ms = START_MS + numbers * 1_000
    tables.add(
        GROUP_GENERATIONS,
        1,
        {
            "group_id": SHARE,
            "group_type": "SHARE",
            "incarnation": 0,
            "generation": 1,
            "log_partition": 3,
            "from_log_offset": 0,
            "valid_from": np.array([START_MS]),
            "state": "Stable",
        },
    )
    for partition in range(size.share_partition_count):
        place = {
            "group_id": SHARE,
            "topic": "pictures",
            "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
            "partition": np.full(count, partition),
            "log_partition": 3,
            "log_offset": numbers,
        }
        offsets = {"first_offset": numbers * 5, "last_offset": numbers * 5 + 4}
        # every seventh range is handed back, every seventieth of all is given up in the end
        is_back, is_lost = numbers % 7 == 0, numbers % 70 == 0
        states = Texts(["ACKNOWLEDGED", "AVAILABLE", "ARCHIVED"], is_back.astype(np.int64) + is_lost)
        until = at_ms + 5_000 + numbers * 7919 % 60_000
        tables.add(
            SHARE_STATE_BATCHES,
            count,
            {
                **place,
                **offsets,
                "from_log_offset": numbers,
                "delivery_state": states,
                "delivery_count": numbers % 5 + 1,
                "valid_from": at_ms,
                "valid_to": until,
                "is_complete": True,
            },
        )
        tables.add(
            SHARE_PARTITION_STATES,
            count,
            {
                **place,
                "record_kind": "UPDATE",
                "valid_from": at_ms,
                "start_offset": np.maximum(numbers * 5 - 100, 0),
                "effective_start_offset": np.maximum(numbers * 5 - 50, 0),
                "is_complete": True,
            },
        )
        ends = {"to_state": "ACKNOWLEDGED", "to_delivery_count": numbers % 5 + 1, "at": at_ms, "kind": "ACKNOWLEDGED"}
        tables.add(SHARE_BATCH_TRANSITIONS, count, {**place, **offsets, **ends})
        events = {**place, **offsets, "group_type": "SHARE", "at": at_ms, "method": "IN_LOG", "confidence": "CERTAIN"}
        for table, which, reported in (
            (REDELIVERIES, is_back, {"cause": "HANDED_BACK", "likely_cause": "RELEASED", "to_delivery_count": 2}),
            (ARCHIVED_RECORDS, is_lost, {"cause": "LIMIT_OR_REJECT", "delivery_count": 5, "delivery_count_limit": 5}),
        ):
            chosen = {name: value[which] if isinstance(value, np.ndarray) else value for name, value in events.items()}
            tables.add(table, int(which.sum()), {**chosen, **reported})
