"""What commands answer: as they print it, and without the caveats."""

from collections.abc import Callable, Mapping
from io import StringIO
from typing import Any, Final

from coordinator_core.inference.facts.rows import OwnerRow
from jobs.cli_enums import View
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.queries.answers.audit_report import Span, run_audit_report
from jobs.queries.answers.describe import Description, describe_with_caveats, run_describe
from jobs.queries.answers.group_history import run_groups, run_history
from jobs.queries.answers.owner import find_owners, run_owner
from jobs.queries.answers.restore import run_restore

UNLESS_ASKED: Final[Mapping[Callable[..., Any], dict[str, Any]]] = {
    run_describe: {"view": View.OFFSETS, "at_ms": None, "group_ids": None, "tool": None, "verbose": False},
    run_audit_report: {"span": Span(), "group_ids": None},
    run_restore: {"output": None},
    run_owner: {"at_ms": None},
    run_history: {"from_ms": None, "to_ms": None},
    run_groups: {"from_ms": None, "match": None, "needs_attention": False},
}
"""What each command asks by itself."""


def printed(
    run: Callable[..., Any], tables: ClusterTables, output_format: str = "csv", **asked: Any
) -> tuple[str, Any]:
    """What a command prints, and what it remarks (of a list: is it complete?)."""
    out = StringIO()
    remarks = run(tables, output_format=output_format, out=out, **UNLESS_ASKED[run] | asked)
    return out.getvalue(), remarks


def describe(warehouse: Warehouse, cluster_id: str, **options: Any) -> list[Description]:
    """Groups at a time, in the order of the tools."""
    return describe_with_caveats(ClusterTables(warehouse, cluster_id), **options)[0]


def owners_at(
    warehouse: Warehouse, cluster_id: str, *, topic: str, partition: int, at_ms: int | None = None
) -> list[OwnerRow]:
    """The owners of a partition at a time (None: the newest state), by group."""
    found = find_owners(ClusterTables(warehouse, cluster_id), topic=topic, partition=partition, at_ms=at_ms)
    return [owner.row for owner in found.owners]
