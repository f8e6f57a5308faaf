"""Rows of the gold tables as the core makes them: the declared columns without `cluster_id`.

Times are epoch milliseconds; None for a missing time.
"""

from typing import NamedTuple


class OwnerRow(NamedTuple):
    """gold.partition_owners."""

    group_id: str
    group_type: str
    topic: str | None
    topic_id: str | None
    partition: int
    from_log_offset: int
    member_id: str
    instance_id: str | None
    client_id: str | None
    client_host: str | None
    from_generation: int
    to_generation: int
    to_log_offset: int | None
    valid_from: int
    valid_to: int | None
    gap_before_ms: int | None
    is_double: bool
    gap_cause: str | None = None
    unowned_partition_ms: int = 0


class RebalanceRow(NamedTuple):
    """gold.rebalances."""

    group_id: str
    group_type: str
    to_generation: int
    incarnation: int
    from_generation: int | None
    started_at: int
    completed_at: int | None
    duration_ms: int | None
    cause: str
    causes: tuple[str, ...]
    method: str
    confidence: str
    members_joined: tuple[str, ...]
    members_left: tuple[str, ...]
    member_count: int
    partitions_total: int | None
    partitions_moved: int | None
    stickiness: float | None
    unowned_partition_ms: int | None
    revoked_partition_ms: int | None
    in_storm: bool
    flapping_members: tuple[str, ...]
    cause_methods: tuple[str, ...]
    cause_confidences: tuple[str, ...]
    rollout_id: str | None
    rollout_confidence: str | None
    unowned_likely_ms: int | None = None
    unowned_most_ms: int | None = None
    unowned_confidence: str | None = None


class AnomalyRow(NamedTuple):
    """gold.commit_anomalies."""

    group_id: str
    group_type: str | None
    topic: str
    partition: int
    log_offset: int
    at: int
    kind: str
    from_offset: int | None
    to_offset: int | None
    delta: int | None
    owner_member_id: str | None
    owner_client_host: str | None
    was_group_empty: bool | None
    likely_cause: str | None
    method: str
    confidence: str


class GroupDayRow(NamedTuple):
    """gold.group_summary; `day` is its first instant in UTC."""

    group_id: str
    group_type: str
    day: int
    generation_count: int = 0
    rebalance_count: int = 0
    member_count_max: int = 0
    commit_count: int = 0
    commit_anomaly_count: int = 0
    not_stable_ms: int = 0
    storm_rebalance_count: int = 0
    unowned_partition_ms: int = 0
    worst_topic: str | None = None
    worst_partition: int | None = None
    went_back_count: int = 0
    unowned_least_ms: int = 0
    unowned_likely_ms: int = 0
    unowned_most_ms: int = 0


class ShareGroupDayRow(NamedTuple):
    """gold.share_group_summary."""

    group_id: str
    group_type: str
    day: int
    acknowledged_count: int = 0
    redelivered_count: int = 0
    archived_count: int = 0
    generation_count: int = 0
    member_count_max: int = 0
    worst_topic: str | None = None
    worst_partition: int | None = None
    records_given_up: int = 0
    records_redelivered: int = 0
    extra_deliveries: int = 0
    offset_change_count: int = 0
    never_delivered_count: int = 0
    delivered_again_count: int = 0
    rebalance_count: int = 0
