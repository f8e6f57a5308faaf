"""Audits: the newest whole one, failed ones, and gold as of a whole audit.

Like a replay (`jobs.delta.replay_runs`), an audit writes its start, then its tables one after another, and last its row
in state.runs, with the Delta version of each table. While an audit is running, or after one failed, readers use the
versions of the audit before. The audit after a failed one rebuilds all of gold.
"""

import json
from collections.abc import Mapping
from typing import Any, Self

from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.replay_runs import PinnedTables, newest_row, number_of
from schemas.tables.state import RUN_STARTS


class WholeAudit(PinnedTables):
    """The newest whole audit of a cluster, and gold as of that audit."""

    def __init__(self, tables: ClusterTables, row: Mapping[str, Any] | None) -> None:
        values = row or {}
        super().__init__(tables, values.get("table_versions") or {})
        self.is_known = row is not None
        self.foreign_versions = dict(values.get("foreign_versions") or ())
        self.audit_version: int = number_of(values.get("audit_version"))
        self.replay_version: int = number_of(values.get("audited_version"))
        self.settings: dict[str, Any] = json.loads(values.get("settings") or "{}")
        self.has_broken_off = False
        """A later audit began and has not ended."""

    @classmethod
    def newest(cls, tables: ClusterTables, *, is_writer: bool = False) -> Self:
        """From the current state.runs. `is_writer`: the caller is about to begin an audit, and nobody else can."""
        columns = ["audited_version", "settings", "table_versions", "foreign_versions"]
        whole = cls(tables, newest_row(tables, "audit_version", columns))

        def has_begun() -> bool:
            starts = tables.read(RUN_STARTS, ["audit_version"])["audit_version"].drop_null()
            return bool(max(starts.to_pylist(), default=-1) > whole.audit_version)

        whole.has_broken_off = whole.watch(RUN_STARTS, has_begun, is_writer=is_writer)
        return whole


def audit_application(cluster_id: str) -> str:
    """The application id of an audit's commits; their version is the number of the audit."""
    return f"groupledger/audit/{cluster_id}"
