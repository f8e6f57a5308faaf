"""Commit anomalies: what each kind takes, what proves it, and that order and neighbours change nothing."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from operator import itemgetter
from typing import Any

import numpy as np
import pytest

from coordinator_core.history.rows import EventRow, GenerationRow, MemberRow
from coordinator_core.inference.audit.group_past import kept_commits
from coordinator_core.inference.commits.commit_anomalies import (
    RESETS_MAX,
    applied_by_partition,
    find_anomalies,
    skips,
)
from coordinator_core.inference.facts.life import NO_EXPIRY, GroupCommits, GroupLife
from coordinator_core.inference.facts.log_facts import LogFacts
from coordinator_core.inference.facts.rows import AnomalyRow, OwnerRow
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.replay.columnar.offsets_columnar import CHANGES, OUTCOMES

SETTINGS = InferenceSettings()
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


def commit(log_offset: int, offset: int | None, previous: int | None = None, **more: Any) -> dict[str, Any]:
    """One applied commit to t-0, its time ten milliseconds a log offset; no offset: a tombstone."""
    delta = None if offset is None or previous is None else offset - previous
    names = {None: "FIRST", 0: "REPEAT"}
    change = names.get(delta, "ADVANCE" if (delta or 0) > 0 else "REWIND") if offset is not None else "DELETE"
    return {
        "log_offset": log_offset,
        "partition": 0,
        "at": log_offset * 10,
        "applied_log_offset": log_offset,
        "committed_offset": -1 if offset is None else offset,
        "previous_offset": -1 if previous is None else previous,
        "outcome": "APPLIED",
        "change": change,
        "is_transactional": False,
    } | more


def commits_of(*rows: dict[str, Any]) -> GroupCommits:
    """As columns, in the order given."""

    def column(name: str, dtype: Any = np.int64) -> Any:
        return np.array([row[name] for row in rows], dtype)

    is_applied = np.array([row["outcome"] == "APPLIED" for row in rows], np.bool_)
    return GroupCommits(
        topics=("t",),
        topic=np.zeros(len(rows), np.int32),
        partition=column("partition", np.int32),
        log_offset=column("log_offset"),
        recorded_at_ms=column("at"),
        applied_log_offset=np.where(is_applied, column("applied_log_offset"), -1),
        applied_at_ms=np.where(is_applied, column("at"), -1),
        committed_offset=column("committed_offset"),
        previous_offset=column("previous_offset"),
        outcome=np.array([OUTCOMES.index(row["outcome"]) for row in rows], np.int8),
        change=np.array([CHANGES.index(row["change"]) if row["outcome"] == "APPLIED" else -1 for row in rows], np.int8),
        is_transactional=column("is_transactional", np.bool_),
        expire_at_ms=np.array([row.get("expire", NO_EXPIRY) for row in rows], np.int64),
    )


def generation(number: int, first: int, end: int | None, member_count: int, **more: Any) -> GenerationRow:
    """A generation of a classic group."""
    values: dict[str, Any] = dict.fromkeys(GenerationRow._fields) | {
        "group_id": "g",
        "group_type": "CLASSIC",
        "incarnation": 0,
        "generation": number,
        "from_log_offset": first,
        "to_log_offset": end,
        "valid_from": first * 10,
        "valid_to": None if end is None else end * 10,
        "state": "Stable" if member_count else "Empty",
        "member_count": member_count,
        "is_contiguous": True,
    }
    return GenerationRow(**(values | more))


def member(first: int, end: int | None, topics: tuple[str, ...] = ("t",)) -> MemberRow:
    """A member, from one place in the log to another."""
    values: dict[str, Any] = dict.fromkeys(MemberRow._fields) | {
        "group_id": "g",
        "group_type": "CLASSIC",
        "member_id": "m",
        "from_log_offset": first,
        "to_log_offset": end,
        "subscribed_topics": topics,
    }
    return MemberRow(**values)


def owner(first: int, end: int | None) -> OwnerRow:
    """Who has t-0."""
    values: dict[str, Any] = dict.fromkeys(OwnerRow._fields) | {
        "topic": "t",
        "partition": 0,
        "member_id": "m",
        "client_host": "/h",
        "from_log_offset": first,
        "to_log_offset": end,
    }
    return OwnerRow(**values)


def event(log_offset: int, event_type: str, **details: str) -> EventRow:
    """A change of the group."""
    return EventRow(log_offset, 0, "g", "CLASSIC", event_type, log_offset * 10, None, None, None, None, details)


def life_of(*rows: dict[str, Any], **parts: Any) -> GroupLife:
    """A group with a member from log offset 0 to 100, then without, and these commits."""
    group = GroupLife(
        "g", 0, (generation(1, 0, 100, 1), generation(2, 100, None, 0)), (member(0, 100),), (), (), commits_of(*rows)
    )
    return group._replace(**parts)


OWNERS = (owner(0, 100),)


def found(life: GroupLife, settings: InferenceSettings = SETTINGS) -> list[AnomalyRow]:
    """Its anomalies."""
    return find_anomalies(life, OWNERS, settings)


def brief(rows: list[AnomalyRow]) -> list[tuple[Any, ...]]:
    """Log offset, kind, method and confidence of each."""
    return [(row.log_offset, row.kind, row.method, row.confidence) for row in rows]


def test_ordinary_commits_are_none() -> None:
    """A first commit, advances and a repetition."""
    assert found(life_of(commit(1, 10), commit(2, 20, 10), commit(3, 20, 20))) == []
    assert found(life_of()) == []


def test_a_rewind_has_its_owner() -> None:
    """With the offsets before and after, and whether anybody was there."""
    (row,) = found(life_of(commit(1, 10), commit(2, 4, 10)))
    assert (row.kind, row.from_offset, row.to_offset, row.delta) == ("REWIND", 10, 4, -6)
    assert (row.owner_member_id, row.owner_client_host, row.was_group_empty) == ("m", "/h", False)
    assert (row.at, row.group_type, row.confidence) == (20, "CLASSIC", "CERTAIN")


def test_a_rewind_by_a_member_that_does_not_own_the_partition() -> None:
    """Accepted, hence from a member; nobody had the partition, hence not from its owner."""
    rows = find_anomalies(life_of(commit(1, 10), commit(2, 4, 10)), (), SETTINGS)
    assert brief(rows) == [(2, "REWIND", "COMMIT_BY_NON_OWNER", "CERTAIN")]


@pytest.mark.parametrize(("begin", "was_empty"), [(1, False), (50, None)])
def test_a_group_has_members_from_its_first_one_on(begin: int, was_empty: bool | None) -> None:
    """Whether the log shows that it joined, or only that it is there; who joins later changes nothing."""
    first, second = member(begin, None), member(80, None)._replace(member_id="n")
    life = life_of(
        commit(20, 10),
        commit(30, 4, 10),
        generations=(generation(1, 1, None, 2),),
        members=(first, second),
        events=(event(80, "MEMBER_JOINED")._replace(member_id="n"),),
    )
    (row,) = found(life)
    assert row.was_group_empty == was_empty


@pytest.mark.parametrize("offset", [5, 10, 15])
def test_a_commit_to_an_emptied_group_is_a_reset(offset: int) -> None:
    """Back, ahead or to the same offset: no member can have done it."""
    rows = found(life_of(commit(1, 10), commit(150, offset, 10)))
    assert brief(rows) == [(150, "EMPTY_GROUP_RESET", "COMMIT_TO_EMPTY_GROUP", "CERTAIN")]
    assert (rows[0].was_group_empty, rows[0].owner_member_id, rows[0].delta) == (True, None, offset - 10)


@pytest.mark.parametrize("are_gaps_known", [True, False])
@pytest.mark.parametrize(("hole", "confidence"), [(99, "CERTAIN"), (120, "LIKELY")])
def test_a_hole_since_a_group_was_emptied_is_doubted(hole: int, confidence: str, are_gaps_known: bool) -> None:
    """By compaction, too: an earlier capture may have read what was replaced there. What rows show is shown."""
    life = life_of(commit(1, 10), commit(150, 20, 10))
    (row,) = found(life._replace(log=LogFacts(holes=(hole,), whole_to=hole, are_gaps_known=are_gaps_known)))
    assert (row.kind, row.confidence, row.was_group_empty) == ("EMPTY_GROUP_RESET", confidence, True)


def test_transactions_and_holes_are_no_proof_of_a_reset() -> None:
    """A transaction needs no member; and in a hole of the log somebody may have been there."""
    assert found(life_of(commit(1, 10), commit(150, 20, 10, is_transactional=True))) == []
    hole = (generation(1, 0, 100, 1), generation(2, 100, 200, 0), generation(9, 200, None, 1, is_contiguous=False))
    rows = found(life_of(commit(1, 10), commit(150, 4, 10), generations=hole))
    assert brief(rows) == [(150, "REWIND", "OFFSET_WENT_BACK", "CERTAIN")]
    assert rows[0].was_group_empty is None


def test_a_consumer_without_membership_is_not_reported_at_each_commit() -> None:
    """Of many commits to a group that stays empty the first is a guess, and rewinds are rewinds."""
    many = [commit(101 + number, number + 1, number or None) for number in range(RESETS_MAX + 1)]
    rows = found(life_of(commit(1, 10), *many, commit(150, 3, RESETS_MAX + 1)))
    assert brief(rows) == [
        (101, "EMPTY_GROUP_RESET", "COMMITS_WITHOUT_MEMBERSHIP", "GUESS"),
        (150, "REWIND", "OFFSET_WENT_BACK", "CERTAIN"),
    ]


def test_offsets_set_once_in_a_group_that_never_had_members() -> None:
    """Perhaps a tool's; no more than a guess, and none where commits go on."""
    first = (generation(0, 2, None, 0, valid_from=10),)
    alone: dict[str, Any] = {"generations": first, "members": (), "events": (event(1, "GROUP_CREATED"),)}
    rows = found(life_of(commit(1, 5), commit(2, 7, partition=1), **alone))
    assert brief(rows) == [(place, "EMPTY_GROUP_RESET", "SET_ONCE_WITHOUT_MEMBERS", "GUESS") for place in (1, 2)]
    assert found(life_of(commit(1, 5), commit(2, 7, 5), **alone)) == []


def test_an_aborted_commit_shows_what_stayed_in_force() -> None:
    """The offset before is that of the commit in force when it was written."""
    aborted = commit(3, 30, outcome="ABORTED", is_transactional=True)
    (row,) = found(life_of(commit(1, 10), commit(2, 20, 10), aborted, commit(4, 40, 20)))
    assert (row.kind, row.from_offset, row.to_offset, row.delta, row.at) == ("ABORTED", 20, 30, None, 30)


@pytest.mark.parametrize(("log_offset", "partition", "in_force"), [(3, 0, 10), (6, 0, 20), (6, 1, 7), (6, 2, None)])
def test_what_is_in_force_is_reported_by_partition_and_marker(
    log_offset: int, partition: int, in_force: int | None
) -> None:
    """A transactional commit counts from its marker on, and for its own partition alone."""
    aborted = commit(log_offset, 30, partition=partition, outcome="ABORTED", is_transactional=True)
    others = (
        commit(1, 10),
        commit(2, 20, 10, applied_log_offset=5, is_transactional=True),
        commit(4, 7, partition=1),
        commit(7, 40, 20),
    )
    rows = found(life_of(*sorted((aborted, *others), key=itemgetter("log_offset"))))
    assert [(row.kind, row.from_offset) for row in rows] == [("ABORTED", in_force)]


def test_a_skip_is_far_and_fast() -> None:
    """Far beyond what is usual in offsets and in offsets a millisecond; a long pause before explains the distance."""
    usual = [commit(number, 100 * number, 100 * (number - 1) or None) for number in range(1, 9)]
    assert brief(found(life_of(*usual, commit(9, 50_800, 800)))) == [(9, "SKIP", "BEYOND_USUAL_RATE", "LIKELY")]
    assert found(life_of(*usual, commit(9, 50_800, 800, at=80 + 6000))) == []
    assert found(life_of(*usual[:2], commit(9, 50_200, 200))) == []


def test_usual_are_the_last_advances_since_a_deletion() -> None:
    """A partition that moves fast for good has two skips, not one at each commit; one that was deleted begins again."""
    usual = [commit(number, 100 * number, 100 * (number - 1) or None) for number in range(1, 9)]
    fast = [commit(9 + number, 800 + 50_000 * (number + 1), 800 + 50_000 * number) for number in range(5)]
    assert [row.log_offset for row in found(life_of(*usual, *fast))] == [9, 10]
    again = [commit(21, 1), commit(22, 2, 1), commit(23, 3, 2), commit(24, 50_003, 3)]
    kinds = [row.kind for row in found(life_of(*usual, commit(20, None, 800), *again))]
    assert kinds == ["DELETED"]


@pytest.mark.parametrize("pauses", [(100, 100, 1, 1000, 1, 30), (1, 1000, 1, 1000, 1000, 30)])
@pytest.mark.parametrize("repeats", [0, 2])
def test_kept_commits_measure_the_next_one_as_all_do(pauses: Sequence[int], repeats: int) -> None:
    """The rate of an advance is that since the one before it, which is kept, too, whatever repeated it since."""
    at = list(accumulate(pauses, initial=1))
    rows = [commit(1, 0, at=1)]
    rows += [commit(2 + number, 100 * (number + 1), 100 * number, at=at[number + 1]) for number in range(5)]
    rows += [commit(10 + number, 500, 500, at=at[5]) for number in range(repeats)]
    before, last = commits_of(*rows), commit(20, 20_500, 500, at=at[6])
    kept = kept_commits(before, applied_by_partition(before), -1)
    few, all_of_them = (commits_of(*some, last) for some in ([rows[row] for row in kept.tolist()], rows))
    assert len(few) < len(all_of_them)
    is_skip = [bool(skips(some, applied_by_partition(some), SETTINGS)) for some in (few, all_of_them)]
    assert is_skip == [pauses[0] == 1] * 2


def test_a_stall_is_reported_once() -> None:
    """When the offset has stayed for long, not at each commit after; and again after it moved."""
    settings = replace(SETTINGS, stalled_ms=25)
    still = [commit(number, 7, 7) for number in range(2, 9)]
    rows = found(life_of(commit(1, 7), *still, commit(9, 8, 7), commit(12, 8, 8)), settings)
    assert brief(rows) == [(place, "STALLED", "REPEATED_COMMITS", "GUESS") for place in (4, 12)]


DELETE_AT = 6000
"""A log offset one minute after the start."""


@pytest.mark.parametrize(
    ("rows", "parts", "cause", "confidence"),
    [
        # a member is subscribed: the topic's own deletion takes its offsets, and other groups would tell whether it did
        ([commit(1, 5), commit(50, None, 5)], {}, "TOPIC_DELETED", "GUESS"),
        # a member is subscribed, but another partition keeps its offset: until 3.1 some expire while a group rebalances
        (
            [commit(1, 5), commit(2, 5, partition=1), commit(50, None, 5, at=2 * MINUTE_MS)],
            {},
            "EXPIRED",
            "GUESS",
        ),
        (
            [commit(1, 5), commit(2, 5, partition=1), commit(50, None, 5, at=7 * DAY_MS + MINUTE_MS)],
            {},
            "EXPIRED",
            "LIKELY",
        ),
        # all are gone, but they may have expired
        ([commit(1, 5), commit(50, None, 5, at=2 * MINUTE_MS)], {}, "TOPIC_DELETED", "GUESS"),
        # the value's own expiry
        ([commit(1, 5, expire=400), commit(50, None, 5)], {}, "EXPIRED", "CERTAIN"),
        ([commit(1, 5, expire=400), commit(50, None, 5, at=3 * DAY_MS)], {}, "EXPIRED", "LIKELY"),
        ([commit(1, 5, expire=501), commit(50, None, 5)], {}, "TOPIC_DELETED", "GUESS"),
        (
            [commit(1, 5, expire=400), commit(2, 5, partition=1, expire=900), commit(50, None, 5)],
            {},
            "EXPIRED",
            "CERTAIN",
        ),
        # with its group: who deletes the group deletes it too
        (
            [commit(1, 5, expire=400), commit(150, None, 5)],
            {"events": (event(151, "GROUP_DELETED")._replace(at=1500),)},
            "EXPIRED",
            "LIKELY",
        ),
        # another partition keeps its offset
        ([commit(1, 5), commit(2, 5, partition=1), commit(150, None, 5)], {}, "OFFSETS_DELETED", "LIKELY"),
        ([commit(1, 5), commit(150, None, 5)], {"events": (event(150, "GROUP_DELETED"),)}, None, "CERTAIN"),
        (
            [commit(1, 5), commit(150, None, 5)],
            {"events": (event(151, "GROUP_DELETED")._replace(at=1500),)},
            "GROUP_DELETED",
            "LIKELY",
        ),
        ([commit(1, 5), commit(150, None, 5)], {}, None, "CERTAIN"),
        ([commit(1, 5), commit(150, None, 5, at=2 * MINUTE_MS)], {}, None, "CERTAIN"),
        ([commit(1, 5), commit(150, None, 5, at=7 * DAY_MS + 5 * MINUTE_MS)], {}, "EXPIRED", "LIKELY"),
        ([commit(1, 5), commit(150, None, 5, at=9 * DAY_MS)], {}, None, "CERTAIN"),
    ],
)
def test_why_an_offset_went_away(
    rows: list[dict[str, Any]], parts: dict[str, Any], cause: str | None, confidence: str
) -> None:
    """Topic, group, some offsets or age; nothing is said where the log does not show it."""
    (row,) = found(life_of(*rows, **parts))
    assert (row.kind, row.from_offset, row.to_offset) == ("DELETED", 5, None)
    assert (row.likely_cause, row.confidence) == (cause, confidence)


@pytest.mark.parametrize(
    ("removed_ms", "rows", "why"),
    [
        (456, [commit(50, None, 5)], ("TOPIC_DELETED", "METADATA_LOG", "CERTAIN")),
        # nobody is subscribed, and it is older than any retention
        (8 * DAY_MS - 44, [commit(150, None, 5, at=8 * DAY_MS)], ("TOPIC_DELETED", "METADATA_LOG", "CERTAIN")),
        (1_700, [commit(150, None, 5)], ("TOPIC_DELETED", "METADATA_LOG", "LIKELY")),
        (5_000, [commit(150, None, 5)], (None, "YOUNGER_THAN_RETENTION", "CERTAIN")),
        (100, [commit(150, None, 5, at=MINUTE_MS)], (None, "TOMBSTONE", "CERTAIN")),
    ],
)
def test_a_topic_that_the_metadata_log_shows_removed(
    removed_ms: int, rows: list[dict[str, Any]], why: tuple[str | None, str, str]
) -> None:
    """Its offsets go within moments, whoever is subscribed to it; a removal later or long before explains nothing."""
    life = life_of(commit(1, 5), *rows)
    (row,) = find_anomalies(life, OWNERS, SETTINGS, removed={"t": (removed_ms,)})
    assert (row.likely_cause, row.method, row.confidence) == why


@pytest.mark.parametrize(
    ("shown", "member_id", "was_empty"),
    [((), None, None), (("m",), "m", False), (("b",), None, False), (("m", "b"), "m", False)],
)
def test_members_of_a_newer_group_behind_a_gap(
    shown: tuple[str, ...], member_id: str | None, was_empty: bool | None
) -> None:
    """Whoever has no record behind it may have gone in it, though a new epoch is there: the owner is not known, nor
    whether there are members. A commit that would be of no owner is not called so."""
    epochs = (generation(1, 0, 60, 2), generation(9, 60, None, 2, is_contiguous=False))
    members = [member(0, None)._replace(member_id=name, group_type="CONSUMER") for name in ("m", "b")]
    life = life_of(
        commit(10, 50),
        commit(80, 20, 50),
        generations=tuple(row._replace(group_type="CONSUMER") for row in epochs),
        members=tuple(members),
        events=tuple(event(70, "MEMBER_RECONCILED")._replace(member_id=name) for name in shown),
    )
    (row,) = find_anomalies(life._replace(log=LogFacts(gaps=(20,), holes=(20,))), (owner(0, None),), SETTINGS)
    assert (row.owner_member_id, row.was_group_empty, row.method) == (member_id, was_empty, "OFFSET_WENT_BACK")
    (row,) = find_anomalies(life, (owner(0, None),), SETTINGS)
    assert (row.owner_member_id, row.was_group_empty) == ("m", False)
