"""gold.log_anomalies: where a log breaks the coordinators' own rules, what that means, and which defect shows like it.

`RULES` is the list, as data. What replay met on its way is in the ANOMALY events of silver (`anomalies`, `history`);
the rest is found here: offsets that outlive their group, and share partitions whose start offset or epochs go back.
That a rule is broken is certain where the log is whole; that a defect is the cause is not: a log put together of
several clusters, or damaged, shows the same.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from coordinator_core import anomalies
from coordinator_core.inference.commit_anomalies import by_partition
from coordinator_core.inference.life import GroupLife
from coordinator_core.log.chunk import I8, I64, BoolArray
from coordinator_core.offsets.lane import CHANGES, OUTCOMES
from coordinator_core.share_state.lane import RECORD_KINDS

CERTAIN: Final = "CERTAIN"
LIKELY: Final = "LIKELY"

GENERATION_FELL: Final = "GENERATION_FELL"
EMBEDDED: Final = "EMBEDDED"
OFFSETS_OUTLIVE_GROUP: Final = "OFFSETS_OUTLIVE_GROUP"
START_OFFSET_WENT_BACK: Final = "START_OFFSET_WENT_BACK"
STATE_EPOCH_FELL: Final = "STATE_EPOCH_FELL"
SNAPSHOT_EPOCH_FELL: Final = "SNAPSHOT_EPOCH_FELL"
LEADER_EPOCH_FELL: Final = "LEADER_EPOCH_FELL"
OTHER: Final = "OTHER"


class Rule(NamedTuple):
    """A rule of the coordinators. `known_defects`: Kafka's issues whose effect on the log looks like a break of it."""

    meaning: str
    known_defects: tuple[str, ...] = ()


RULES: Final[Mapping[str, Rule]] = {
    anomalies.DOUBLE_OWNER: Rule(
        "A partition was given to a member while another member still held it: both may have read it. In a log that "
        "was compacted while it was read, the record by which the other gave it up may only be missing.",
        ("KAFKA-16147", "KAFKA-19862"),
    ),
    anomalies.CLASSIC_MEMBER_REPEATED: Rule(
        "One generation of a classic group names a member id or a group instance id twice."
    ),
    anomalies.GROUP_TYPE_MISMATCH: Rule(
        "A record of one group type for an id held by a group of another: the tombstones of the former group are "
        "missing, or came later. Kafka refuses to load such a partition.",
        ("KAFKA-17306", "KAFKA-19862"),
    ),
    anomalies.GROUP_TOMBSTONE_TOO_EARLY: Rule(
        "A group was deleted with members or assignments left, whose own tombstones are missing.", ("KAFKA-17306",)
    ),
    anomalies.MEMBER_TOMBSTONE_TOO_EARLY: Rule(
        "A member was deleted with an assignment left, whose own tombstone is missing.", ("KAFKA-17306",)
    ),
    anomalies.TARGET_TOMBSTONE_TOO_EARLY: Rule(
        "The assignment epoch was deleted with target assignments left, whose own tombstones are missing.",
        ("KAFKA-17306",),
    ),
    GENERATION_FELL: Rule(
        "A generation or group epoch is lower than the one before it, with no tombstone between: the group's deletion "
        "is missing from the log, or a coordinator wrote that had lost what another one knew."
    ),
    EMBEDDED: Rule(
        "A subscription or assignment inside a group's record is not what its protocol says: the client that made it "
        "is at fault, or uses a protocol of its own. Kafka stores such bytes unread."
    ),
    OFFSETS_OUTLIVE_GROUP: Rule(
        "A group was deleted and an offset committed before stayed in force: its tombstone is missing. A new group of "
        "that id would go on from it."
    ),
    START_OFFSET_WENT_BACK: Rule(
        "A share partition's start offset went back without a reset: a share partition that had lost its leadership "
        "still wrote. Records before the greater offset may be delivered again.",
        ("apache/kafka#23074",),
    ),
    STATE_EPOCH_FELL: Rule(
        "A share partition's state epoch went back without its deletion: a write from before a reset was taken.",
        ("KAFKA-19456", "KAFKA-20743"),
    ),
    SNAPSHOT_EPOCH_FELL: Rule(
        "A share partition's snapshot epoch went back without its deletion: a share coordinator wrote that had not "
        "seen the newest snapshot, or a tombstone is missing."
    ),
    LEADER_EPOCH_FELL: Rule(
        "A share partition's leader epoch went back without a reset: a leader that had been replaced still wrote.",
        ("KAFKA-19456", "KAFKA-20743"),
    ),
    OTHER: Rule("The log contradicts its own past in a way that has no description of its own."),
}
"""What each rule's break means. Defects are named by Kafka's issue, or by pull request where there is no issue."""


class LogAnomalyRow(NamedTuple):
    """gold.log_anomalies, less the coordinator topic."""

    group_id: str
    group_type: str | None
    rule: str
    log_partition: int
    log_offset: int
    ordinal: int
    """Which of several in one record."""
    at: int
    topic: str | None
    topic_id: str | None
    partition: int | None
    member_id: str | None
    details: str
    meaning: str
    known_defects: tuple[str, ...]
    method: str
    confidence: str


def group_anomalies(life: GroupLife) -> list[LogAnomalyRow]:
    """Broken rules in the log of one group, in log order."""
    rows = [*_from_events(life), *_orphaned_offsets(life)]
    return sorted(rows, key=lambda row: (row.log_offset, row.ordinal, row.rule))


def _from_events(life: GroupLife) -> Iterator[LogAnomalyRow]:
    for event in life.events:
        if event.event_type != "ANOMALY":
            continue
        code = event.details.get("code", OTHER)
        rule = EMBEDDED if code.startswith(EMBEDDED) else code if code in RULES else OTHER
        yield LogAnomalyRow(
            life.group_id,
            event.group_type,
            rule,
            life.log_partition,
            event.log_offset,
            event.event_index,
            event.at,
            event.topic,
            None,
            event.partition,
            event.member_id,
            f"{code}: {event.details.get('message', '')}",
            *RULES[rule],
            "REPLAY",
            CERTAIN,
        )


def _orphaned_offsets(life: GroupLife) -> Iterator[LogAnomalyRow]:
    """Offsets which were in force when their group was deleted, and after. The row is at the group's deletion."""
    deletions = [event for event in life.events if event.event_type == "GROUP_DELETED"]
    commits = life.commits
    if not deletions or not len(commits):
        return
    rows, starts = by_partition(commits, commits.outcome == OUTCOMES.index("APPLIED"))
    for first, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        mine = rows[first:end]
        applied_at = commits.applied_log_offset[mine]
        for event in deletions:
            last = int(np.searchsorted(applied_at, event.log_offset)) - 1
            if last < 0 or commits.change[mine[last]] == CHANGES.index("DELETE"):
                continue
            if last + 1 < len(mine) and commits.change[mine[last + 1]] == CHANGES.index("FIRST"):
                # nothing was in force when the next one came: the tombstone is there, of the same operation
                continue
            row = mine[last]
            yield LogAnomalyRow(
                life.group_id,
                event.group_type,
                OFFSETS_OUTLIVE_GROUP,
                life.log_partition,
                event.log_offset,
                event.event_index,
                event.at,
                commits.topics[commits.topic[row]],
                None,
                int(commits.partition[row]),
                None,
                f"offset {int(commits.committed_offset[row])} of log offset {int(commits.log_offset[row])}",
                *RULES[OFFSETS_OUTLIVE_GROUP],
                "NO_TOMBSTONE",
                LIKELY,
            )


@dataclass(frozen=True, slots=True)
class ShareEpochs:
    """What silver.share_partition_states says of starts and epochs, in any order. Null is -1."""

    key: I64
    """Numbers the share partitions."""
    log_offset: I64
    record_kind: I8
    """Index into `RECORD_KINDS`."""
    start_offset: I64
    state_epoch: I64
    snapshot_epoch: I64
    leader_epoch: I64

    def __len__(self) -> int:
        return len(self.key)


class ShareBreak(NamedTuple):
    """Rows at which a rule is broken, and the rows before them."""

    rule: str
    column: str
    rows: I64
    previous: I64


_TOMBSTONE: Final = RECORD_KINDS.index("TOMBSTONE")
_RESET: Final = RECORD_KINDS.index("RESET")

SHARE_RULES: Final = (
    # rule, column, may a reset lower it
    (START_OFFSET_WENT_BACK, "start_offset", True),
    (STATE_EPOCH_FELL, "state_epoch", False),
    (SNAPSHOT_EPOCH_FELL, "snapshot_epoch", False),
    (LEADER_EPOCH_FELL, "leader_epoch", True),
)


def share_breaks(states: ShareEpochs) -> list[ShareBreak]:
    """Where a share partition's start offset or epochs went back although nothing had reset or deleted it.

    A start offset of -1 is not set yet, and compares with nothing.
    """
    order = np.lexsort((states.log_offset, states.key))
    kind = states.record_kind[order]
    goes_on: BoolArray = states.key[order][1:] == states.key[order][:-1]
    goes_on &= (kind[1:] != _TOMBSTONE) & (kind[:-1] != _TOMBSTONE)
    breaks = []
    for rule, column, is_reset_free in SHARE_RULES:
        values: I64 = getattr(states, column)[order]
        is_broken = goes_on & (values[1:] < values[:-1])
        if column == "start_offset":
            is_broken &= values[1:] >= 0
        if is_reset_free:
            is_broken &= kind[1:] != _RESET
        places = np.flatnonzero(is_broken)
        if len(places):
            breaks.append(ShareBreak(rule, column, order[places + 1], order[places]))
    return breaks
