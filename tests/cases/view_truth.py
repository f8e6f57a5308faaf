"""The truth of a simulation as a judge of damaged logs needs it: at any moment, and of any record."""

import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from schemas.consumer_offsets import TOPIC as GROUPS_TOPIC
from schemas.consumer_offsets import RecordType
from tests.cases.log_views import Log
from tests.cases.scenario_truth import true_reasons
from tests.scenarios import Scenario

END_MS = 2**62
MEMBERS = frozenset(
    {
        RecordType.CONSUMER_GROUP_MEMBER_METADATA,
        RecordType.SHARE_GROUP_MEMBER_METADATA,
        RecordType.STREAMS_GROUP_MEMBER_METADATA,
    }
)
Offset = tuple[str, str, int]
"""Group, topic and partition."""
Owner = tuple[str, str, int, str]
"""The same, and the member."""


class TrueGeneration(NamedTuple):
    """A generation or group epoch, as its coordinator wrote it."""

    at_ms: int
    generation: int
    reasons: frozenset[str]
    member_count: int
    log_offset: int


class TrueCommit(NamedTuple):
    """What became of a commit, or of a tombstone (`value` None)."""

    offset: Offset
    before: int | None
    value: int | None
    outcome: str


class TrueRecord(NamedTuple):
    """A record of the whole log."""

    at_ms: int
    log: str
    offset: int
    record_type: int | None
    """Of a group's record."""
    state_of: tuple[str, str] | None
    """The group and the member whose state it is ("": it is the group's); None for a commit, and in another topic."""


class ViewTruth:
    """Of one cluster. Everything comes from what the simulator wrote, nothing from the jobs."""

    def __init__(self, life: Scenario, logs: Mapping[str, Log]) -> None:
        self._life = life
        self.topics = {line["topic_id"]: line["topic"] for line in life.truth("topics")}
        self.generations = _generations(life)
        self.owners = true_spans(life, self.topics)
        self.why_deleted = {
            tuple(line["log"]): line["why"] or "OFFSETS_DELETED"
            for line in life.truth("deletions")
            if line["what"] == "OFFSET"
        }
        self.commits = _commits(life)
        self.records: dict[str, list[TrueRecord]] = defaultdict(list)
        """By internal topic, those that no marker is."""
        for name, log in logs.items():
            self.records[name.rpartition("-")[0]] += [
                TrueRecord(it.timestamp_ms, name, it.offset, *_state_of(name, it.key or b""))
                for batch in log
                if not batch.header.is_control
                for it in batch.records
            ]

    def generation(self, group: str, generation: int, near_ms: int | None) -> TrueGeneration | None:
        """The generation with a number; of several, because the group was made again, the one nearest to a time."""
        found = [it for it in self.generations[group] if it.generation == generation]
        return min(found, key=lambda it: abs(it.at_ms - (near_ms or 0)), default=None)

    def reasons_between(self, group: str, first: int, last: TrueGeneration) -> frozenset[str]:
        """Of all generations after one, up to another."""
        found = (
            it.reasons
            for it in self.generations[group]
            if it.log_offset <= last.log_offset and first < it.generation <= last.generation
        )
        return frozenset[str]().union(*found)

    def members_at(self, group: str, log_offset: int) -> Iterable[TrueRecord]:
        """The newest records that say who is a member of a group that is not CLASSIC; tombstones, too."""
        newest = {
            it.state_of: it
            for it in self.records[GROUPS_TOPIC]
            if it.record_type in MEMBERS and it.state_of and it.state_of[0] == group and it.offset <= log_offset
        }
        return newest.values()

    def may_be_empty(self, group: str, at_ms: int) -> set[bool]:
        """Whether a group had no members, just before a moment and at it."""
        lines = self.generations[group]
        at = [bisect_right(lines, moment, key=lambda it: it.at_ms) - 1 for moment in (at_ms - 1, at_ms)]
        return {index < 0 or not lines[index].member_count for index in at}

    def unowned_ms(self, owner: Owner, from_ms: int, to_ms: int) -> int:
        """How much of a span the member did not own the partition."""
        owned = (min(to_ms, end) - max(from_ms, begin) for begin, end in self.owners.get(owner, ()))
        return to_ms - from_ms - sum(max(ms, 0) for ms in owned)


def _generations(life: Scenario) -> dict[str, list[TrueGeneration]]:
    """By group, in log order. Several operations of a group in one millisecond are one to the log."""
    reasons, _ = true_reasons(life)
    found: dict[str, list[TrueGeneration]] = defaultdict(list)
    last: dict[tuple[str, int], set[str]] = {}
    for line in life.truth("generations"):
        group, moment = line["group"], (line["group"], line["ts_ms"])
        mine = {cause["reason"] for cause in line["causes"]} | reasons[group, line["generation"]]
        last[moment] = last.get(moment, set()) | mine
        found[group].append(
            TrueGeneration(
                line["ts_ms"], line["generation"], frozenset(last[moment]), len(line["members"]), line["log"][1]
            )
        )
    return found


def true_spans(life: Scenario, topics: Mapping[str, str]) -> dict[Owner, list[tuple[int, int]]]:
    """When members owned partitions: disjoint spans, ascending. Not of streams groups, whose truth has tasks."""
    spans: dict[Owner, list[tuple[int, int]]] = defaultdict(list)
    since: dict[Owner, int] = {}

    def change(before: set[Owner], after: set[Owner], at_ms: int) -> None:
        for owner in before - after:
            begin = since.pop(owner)
            merged = spans[owner] and spans[owner][-1][1] == begin
            spans[owner][-1:] = [(spans[owner][-1][0], at_ms)] if merged else [*spans[owner][-1:], (begin, at_ms)]
        since.update(dict.fromkeys(after - before, at_ms))

    by_group: dict[str, set[Owner]] = defaultdict(set)
    by_member: dict[tuple[str, str], set[Owner]] = defaultdict(set)
    for line in life.truth("generations"):
        if line["group_type"] == "CLASSIC":
            group = line["group"]
            members: Mapping[str, Any] = line["members"]
            owned = {
                (group, topic, number, member_id)
                for member_id, member in members.items()
                for topic, numbers in member["assignment"]
                for number in numbers
            }
            change(by_group[group], owned, line["ts_ms"])
            by_group[group] = owned
    for line in life.truth("assignments"):
        key = line["group"], line["member_id"]
        owned = {
            (line["group"], topics[topic_id], number, line["member_id"])
            for topic_id, numbers in (*line["assigned"], *line["pending_revocation"])
            for number in numbers
            if line["member_epoch"] is not None
        }
        change(by_member[key], owned, line["ts_ms"])
        by_member[key] = owned
    for owner, begin in since.items():
        spans[owner].append((begin, END_MS))
    return spans


def _commits(life: Scenario) -> dict[tuple[int, int], TrueCommit]:
    """By log partition and offset of the record: a plain replay of what was committed, deleted, and ended."""
    steps: list[tuple[int, int, int, Offset | None, int | None, str]] = []
    for line in life.truth("commits"):
        for topic, partition, value, log_offset in line["offsets"]:
            offset = line["group"], topic, partition
            steps.append((line["log_partition"], log_offset, line["producer_id"], offset, value, ""))
    for line in life.truth("deletions"):
        if line["what"] == "OFFSET":
            offset = line["group"], line["topic"], line["partition"]
            steps.append((*line["log"], -1, offset, None, ""))
    for line in life.truth("transactions"):
        steps.append((*line["log"], line["producer_id"], None, None, line["outcome"]))
    found: dict[tuple[int, int], TrueCommit] = {}
    in_force: dict[Offset, tuple[int, int]] = {}
    """The offset, and where its record is."""
    pending: dict[tuple[int, int], list[tuple[int, Offset, int]]] = defaultdict(list)
    for log_partition, log_offset, producer_id, where, value, outcome in sorted(steps, key=lambda it: it[:2]):
        if where is None:
            _end(found, in_force, log_partition, pending.pop((log_partition, producer_id), ()), outcome)
        elif value is None:
            found[log_partition, log_offset] = TrueCommit(where, in_force.pop(where, (None, 0))[0], None, "APPLIED")
            for waiting in pending.values():
                waiting[:] = [it for it in waiting if it[1] != where]
        elif producer_id >= 0:
            pending[log_partition, producer_id].append((log_offset, where, value))
        else:
            before = in_force.get(where, (None, 0))[0]
            found[log_partition, log_offset] = TrueCommit(where, before, value, "APPLIED")
            in_force[where] = value, log_offset
    return found


def _end(
    found: dict[tuple[int, int], TrueCommit],
    in_force: dict[Offset, tuple[int, int]],
    log_partition: int,
    waiting: Iterable[tuple[int, Offset, int]],
    outcome: str,
) -> None:
    """A transaction ends."""
    for log_offset, offset, value in waiting:
        before, place = in_force.get(offset, (None, -1))
        if outcome == "ABORTED":
            found[log_partition, log_offset] = TrueCommit(offset, before, value, "ABORTED")
        elif place > log_offset:
            found[log_partition, log_offset] = TrueCommit(offset, before, value, "SUPERSEDED")
        else:
            found[log_partition, log_offset] = TrueCommit(offset, before, value, "APPLIED")
            in_force[offset] = value, log_offset


def _state_of(log: str, key: bytes) -> tuple[int | None, tuple[str, str] | None]:
    """Keys of a group's state begin with its id, those of a member's have the member's next."""
    if not log.startswith(GROUPS_TOPIC):
        return None, None
    record_type, size = struct.unpack_from(">hh", key)
    if record_type <= RecordType.OFFSET_COMMIT:
        return record_type, None
    return record_type, (key[4 : 4 + size].decode(), key[6 + size :].decode())


def missing_records(truth: ViewTruth, topic: str, captured: Mapping[str, set[int]]) -> Sequence[TrueRecord]:
    """Records of an internal topic that no night had."""
    return [it for it in truth.records[topic] if it.offset not in captured.get(it.log, ())]
