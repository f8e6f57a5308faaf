"""Groups to infer from: told as the coordinator's operations, and replayed into rows as the replay job does."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from coordinator_core.client_protocols import Assignment, Subscription, encode_assignment, encode_subscription
from coordinator_core.history.groups import GroupHistory, GroupRecord, Operation
from coordinator_core.inference.life import GroupCommits, GroupLife
from coordinator_core.offsets.lane import CHANGES, OUTCOMES
from schemas.consumer_offsets import RecordType
from tests.coordinator_core.group_records import Record, record

GROUP = "g"
TOPIC = "t"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
SESSION_MS = 45_000
REBALANCE_MS = 300_000

Partitions = Mapping[str, Sequence[int]]
"""Member id -> partitions of TOPIC."""


def classic(
    generation: int,
    partitions: Partitions,
    *,
    state_at: int = -1,
    protocol: str = "range",
    instances: Mapping[str, str] | None = None,
    topics: Mapping[str, Sequence[str]] | None = None,
) -> list[Record]:
    """A generation of a classic group: the whole picture in one record."""
    members = [
        {
            "member_id": member_id,
            "client_id": f"client-{member_id}",
            "client_host": "/h",
            "rebalance_timeout": REBALANCE_MS,
            "session_timeout": SESSION_MS,
            "group_instance_id": (instances or {}).get(member_id),
            "subscription": encode_subscription(
                Subscription(version=3, topics=tuple((topics or {}).get(member_id, (TOPIC,))))
            ),
            "assignment": encode_assignment(Assignment(version=3, assigned_partitions=((TOPIC, tuple(owned)),))),
        }
        for member_id, owned in partitions.items()
    ]
    value = {
        "protocol_type": "consumer",
        "generation": generation,
        "protocol": protocol if members else None,
        "leader": next(iter(partitions), None),
        "current_state_timestamp": state_at,
        "members": members,
    }
    return [record(RecordType.GROUP_METADATA, {"group": GROUP}, value)]


def joins(member_id: str, instance_id: str | None = None, regex: str | None = None) -> list[Record]:
    """A member comes to a consumer group."""
    value = {
        "instance_id": instance_id,
        "client_id": f"client-{member_id}",
        "client_host": "/h",
        "subscribed_topic_names": (TOPIC,) if regex is None else (),
        "subscribed_topic_regex": regex,
        "rebalance_timeout_ms": REBALANCE_MS,
    }
    key = {"group_id": GROUP, "member_id": member_id}
    return [record(RecordType.CONSUMER_GROUP_MEMBER_METADATA, key, value)]


def goes(member_id: str) -> list[Record]:
    """A member goes from a consumer group, whatever the reason."""
    key = {"group_id": GROUP, "member_id": member_id}
    return [
        record(record_type, key, None)
        for record_type in (
            RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
            RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
            RecordType.CONSUMER_GROUP_MEMBER_METADATA,
        )
    ]


def epoch(number: int, metadata_hash: int = 7) -> list[Record]:
    """The group epoch is raised."""
    value = {"epoch": number, "metadata_hash": metadata_hash}
    return [record(RecordType.CONSUMER_GROUP_METADATA, {"group_id": GROUP}, value)]


def target(number: int, partitions: Partitions) -> list[Record]:
    """A target is computed for a group epoch."""
    members = [
        record(
            RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
            {"group_id": GROUP, "member_id": member_id},
            {"topic_partitions": [_owned(owned)] if owned else []},
        )
        for member_id, owned in partitions.items()
    ]
    value = {"assignment_epoch": number}
    return [*members, record(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, {"group_id": GROUP}, value)]


def reconciled(
    member_id: str, number: int, owned: Sequence[int], *, revoking: Sequence[int] = (), state: int = 0
) -> list[Record]:
    """A member is given its assignment for an epoch. States: 0 STABLE, 1 UNREVOKED, 2 UNRELEASED partitions."""
    value = {
        "member_epoch": number,
        "previous_member_epoch": number,
        "state": state,
        "assigned_partitions": [_owned(owned)] if owned else [],
        "partitions_pending_revocation": [_owned(revoking)] if revoking else [],
    }
    key = {"group_id": GROUP, "member_id": member_id}
    return [record(RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, key, value)]


def _owned(partitions: Sequence[int]) -> dict[str, Any]:
    return {"topic_id": TOPIC_ID, "partitions": tuple(partitions)}


def life_of(
    operations: Iterable[tuple[int, Sequence[Record]]], commits: Iterable[tuple[int, int, int]] = ()
) -> GroupLife:
    """The life of a group: operations as (time in ms, records), commits as (time in ms, partition, offset).

    Both are laid into one log, in the order of time; at one time operations come first.
    """
    history = GroupHistory()
    told: list[tuple[int, int, int, Any]] = [(at, 0, index, what) for index, (at, what) in enumerate(operations)]
    told.extend((at, 1, index, (partition, offset)) for index, (at, partition, offset) in enumerate(commits))
    told.sort(key=lambda step: step[:3])
    log_offset = 0
    committed: list[tuple[int, int, int, int]] = []
    for at, kind, _, what in told:
        if kind:
            committed.append((at, log_offset, what[0], what[1]))
            log_offset += 1
            continue
        records = [GroupRecord(log_offset + index, *one) for index, one in enumerate(what)]
        log_offset += len(records)
        history.apply(Operation(GROUP, at, records[-1].offset, records))
    rows = history.finish()
    return GroupLife(
        GROUP,
        0,
        tuple(rows.generations),
        tuple(rows.members),
        tuple(
            row if row.topic or row.group_type == "CLASSIC" else row._replace(topic=TOPIC) for row in rows.assignments
        ),
        tuple(rows.events),
        _columns(committed),
    )


def _columns(committed: Sequence[tuple[int, int, int, int]]) -> GroupCommits:
    at, log_offset, partition, offset = np.array(committed, np.int64).reshape(-1, 4).T
    count = len(committed)
    return GroupCommits(
        topics=(TOPIC,),
        topic=np.zeros(count, np.int32),
        partition=partition.astype(np.int32),
        log_offset=log_offset,
        recorded_at_ms=at,
        applied_log_offset=log_offset,
        applied_at_ms=at,
        committed_offset=offset,
        previous_offset=np.full(count, -1, np.int64),
        outcome=np.full(count, OUTCOMES.index("APPLIED"), np.int8),
        change=np.full(count, CHANGES.index("ADVANCE"), np.int8),
        is_transactional=np.zeros(count, np.bool_),
    )
