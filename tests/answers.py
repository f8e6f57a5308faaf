"""Answers of queries without their caveats."""

from typing import Any

from coordinator_core.inference.facts.rows import OwnerRow
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.queries.answers.describe import Description, describe_with_caveats
from jobs.queries.answers.owner import find_owners


def describe(warehouse: Warehouse, cluster_id: str, **options: Any) -> list[Description]:
    """Groups at a time, in the order of the tools."""
    return describe_with_caveats(ClusterTables(warehouse, cluster_id), **options)[0]


def owners_at(
    warehouse: Warehouse, cluster_id: str, *, topic: str, partition: int, at_ms: int | None = None
) -> list[OwnerRow]:
    """The owners of a partition at a time (None: the newest state), by group."""
    found = find_owners(ClusterTables(warehouse, cluster_id), topic=topic, partition=partition, at_ms=at_ms)
    return [owner.row for owner in found.owners]
