"""verify: a cluster's answers against a small silver made by hand, without a broker and without Spark."""

import csv
import io
import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import pytest

from coordinator_core.bytes.coverage import CoverageKind, CoverageRange
from coordinator_core.bytes.log_partitions import LogPartition
from coordinator_core.history.comparison_with_broker import Reason, Verdict
from coordinator_core.replay.lookup import SharePartitionKey
from jobs.bronze.coverage import to_table
from jobs.bronze.identity import CLUSTER as CLUSTER_ID_KIND
from jobs.bronze.identity import Identity, keep_identities
from jobs.cli.app import main
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.commits import OVERWRITE
from jobs.delta.warehouse import Warehouse
from jobs.errors import SourceError
from jobs.queries.verify.verify import print_findings, run_verify, summary_rows, verify
from jobs.queries.verify.verify_broker import Asked
from jobs.queries.verify.verify_judge import HIDDEN, LEFT_OUT, NO_SNAPSHOT, UNREAD, Finding, Thing, What
from jobs.queries.verify.verify_ledger import joined_batches
from jobs.settings import load_settings
from jobs.sources.admin import Admin
from jobs.sources.admin_answers import (
    AssignedPartition,
    CommittedOffset,
    GroupDescription,
    GroupMember,
    Refusal,
    ShareOffset,
    ShareState,
    StateBatch,
    Topic,
    TopicPartitionId,
    TopologyStatus,
)
from jobs.sources.admin_questions import _classic_member
from schemas.tables.bronze import COVERAGE
from tests.jobs.fake_kafka import FakeKafka
from tests.jobs.history import CLUSTER, between, commit, event, write
from tests.jobs.hostile import HOSTILE
from tests.jobs.queries.answers.test_describe import (
    ASSIGNMENTS,
    COMMITS,
    GENERATIONS,
    MEMBERS,
    assignment,
    generation,
    member,
)

OFFSETS_LOG: Final = ("__consumer_offsets", 0)
SHARE_LOG: Final = ("__share_group_state", 0)
EVENTS, STATES, BATCHES = "silver.group_events", "silver.share_partition_states", "silver.share_state_batches"
END: Final = 10
TOPIC_ID: Final = "tmyj-FEYST-VyJ_du8dc1w"
DELETED_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
NOT_FOUND: Final = Refusal.of(69)
FORBIDDEN: Final = Refusal.of(30)
TOPICS: Final = {
    "__consumer_offsets": Topic("__consumer_offsets", "AAAAAAAAAAAAAAAAAAAAAw", 1),
    "__share_group_state": Topic("__share_group_state", "AAAAAAAAAAAAAAAAAAAABA", 1),
    "t": Topic("t", TOPIC_ID, 4),
}


class FakeAdmin(Admin):
    """Answers what is asked after the ledger was read."""

    def __init__(self, by_name: Mapping[str, GroupDescription | Refusal], hidden: Collection[str] = ()) -> None:
        self._by_name = by_name
        self._hidden = hidden

    def describe_groups(self, groups: Mapping[str, str]) -> dict[str, GroupDescription | Refusal]:
        """What is said of groups by name."""
        return {name: self._by_name.get(name, NOT_FOUND) for name in groups}

    def refused_topics(self, names: Collection[str]) -> dict[str, Refusal]:
        """Topics are hidden, or not there."""
        return {name: Refusal.of(29 if name in self._hidden else 3) for name in names}


def described(before: int = END, after: int = END, **more: Any) -> Asked:
    """What a cluster said: nothing, unless said otherwise."""
    logs = (OFFSETS_LOG, SHARE_LOG)
    asked = Asked(
        None,
        dict.fromkeys(logs, 0),
        dict.fromkeys(logs, before),
        dict.fromkeys(logs, after),
        TOPICS,
        descriptions={},
        offsets={},
        share_offsets={},
        share_states={},
    )
    return replace(asked, **more)


def cover(warehouse: Warehouse, *ranges: CoverageRange, log: LogPartition = OFFSETS_LOG) -> None:
    """What was captured of the log of groups; of share states all."""
    whole = (CoverageRange(0, END - 1, CoverageKind.CAPTURED, 0),)
    coverage = {OFFSETS_LOG: whole, SHARE_LOG: whole} | ({log: ranges} if ranges else {})
    version = warehouse.last_version(COVERAGE, "history") + 1
    warehouse.write(COVERAGE, to_table(CLUSTER, coverage), app_id="history", version=version, mode=OVERWRITE)


def judged(warehouse: Warehouse, asked: Asked, admin: Admin | None = None) -> list[Finding]:
    """All findings."""
    if not warehouse.exists(COVERAGE):
        cover(warehouse)
    return verify(ClusterTables(warehouse, CLUSTER), asked, admin or FakeAdmin({}))


def unequal(findings: list[Finding]) -> list[tuple[str, str, str | None, Any, Any, str | None]]:
    """(verdict, name, field, broker, ledger, reason) of what is not equal."""
    return [
        (it.verdict.name, it.thing.name, it.field, it.described, it.known, it.reason)
        for it in findings
        if it.verdict is not Verdict.EQUAL
    ]


def history() -> dict[str, list[dict[str, Any]]]:
    """A consumer group: m1 has t-0 and t-1; m2 comes at 5 and gets t-1 at 7."""
    m1 = member("g", "m1", 1, None, "CONSUMER", member_epoch=3, uses_classic_protocol=False)
    m2 = member("g", "m2", 5, None, "CONSUMER", member_epoch=3, uses_classic_protocol=False)
    more = {"topic_id": TOPIC_ID}
    return {
        GENERATIONS: [
            generation("g", 1, 5, "CONSUMER", generation=2, assignment_epoch=2, state="Stable"),
            generation("g", 5, None, "CONSUMER", generation=3, assignment_epoch=3, state="Stable"),
        ],
        MEMBERS: [m1, m2],
        ASSIGNMENTS: [
            assignment(m1, 0) | more,
            assignment(m1, 1) | more | between(1, 6),
            assignment(m2, 1) | more | between(7, None),
        ],
        EVENTS: [
            event("g", 1, "GROUP_CREATED"),
            event("g", 1, "TARGET_COMPUTED", generation=2, event_index=1),
            event(
                "g", 1, "MEMBER_RECONCILED", generation=2, member_id="m1", details=[("state", "STABLE")], event_index=2
            ),
            event("g", 5, "MEMBER_JOINED", member_id="m2"),
            event("g", 5, "TARGET_COMPUTED", generation=3, event_index=1),
            event("g", 6, "MEMBER_RECONCILED", generation=3, member_id="m1", details=[("state", "STABLE")]),
            event("g", 7, "MEMBER_RECONCILED", generation=3, member_id="m2", details=[("state", "STABLE")]),
        ],
        COMMITS: [commit("g", 3, 30, leader_epoch=4), commit("g", 8, 80, partition=1, metadata="m")],
    }


def owned(*partitions: int) -> frozenset[AssignedPartition]:
    """Partitions of topic t."""
    return frozenset(AssignedPartition(TOPIC_ID, "t", partition, None) for partition in partitions)


def of_member(member_id: str, epoch: int, *partitions: int) -> GroupMember:
    """As the broker describes it."""
    client = f"client-{member_id}"
    return GroupMember(member_id, None, client, "/10.0.0.1", None, epoch, False, owned(*partitions), frozenset())


AT_END: Final = GroupDescription(
    "g", "CONSUMER", "Stable", (of_member("m1", 3, 0), of_member("m2", 3, 1)), None, "uniform", 3, 3
)
OFFSETS_AT_END: Final = {("t", 0): CommittedOffset(30, 4, ""), ("t", 1): CommittedOffset(80, None, "m")}


def test_the_end_of_the_log_is_what_the_broker_says(warehouse: Warehouse) -> None:
    """Group, members, assignments, offsets; an assignor that no member asked for is the broker's own and in no log."""
    write(warehouse, history())
    findings = judged(warehouse, described(descriptions={"g": AT_END}, offsets={"g": OFFSETS_AT_END}))
    assert unequal(findings) == []
    assert Counter(it.thing.what for it in findings) == {
        What.GROUP: 1,
        What.MEMBER: 2,
        What.ASSIGNMENT: 2,
        What.OFFSET: 2,
    }


STATES_ON_THE_WAY = [
    (2, GroupDescription("g", "CONSUMER", "Stable", (of_member("m1", 2, 0, 1),), None, "uniform", 2, 2)),
    (
        6,
        GroupDescription(
            "g", "CONSUMER", "Reconciling", (of_member("m1", 2, 0, 1), of_member("m2", 0)), None, "range", 3, 3
        ),
    ),
    (
        7,
        GroupDescription(
            "g", "CONSUMER", "Reconciling", (of_member("m1", 3, 0), of_member("m2", 0)), None, "range", 3, 3
        ),
    ),
    (8, AT_END),
]


@pytest.mark.parametrize(("log_end", "description"), STATES_ON_THE_WAY)
def test_any_state_of_the_time_of_asking_is_equal(
    warehouse: Warehouse, log_end: int, description: GroupDescription
) -> None:
    """While the group rebalanced the broker may have answered each of its states; at one log end only the one there."""
    write(warehouse, history())
    whole, still = (
        described(before=2, descriptions={"g": description}),
        described(log_end, log_end, descriptions={"g": description}),
    )
    for asked in (whole, still):
        assert [it for it in judged(warehouse, asked) if it.thing.what is not What.OFFSET and it.verdict] == []
    later = [
        it.verdict
        for it in judged(warehouse, described(descriptions={"g": description}))
        if it.thing.what is What.GROUP
    ]
    assert set(later) == {Verdict.EQUAL if log_end == 8 else Verdict.DIFFERENT}


def test_no_state_of_the_time_is_moved_on_where_it_moved(warehouse: Warehouse) -> None:
    """What changed meanwhile cannot be pinned; what did not move is different all the same."""
    write(warehouse, history())
    mixed = replace(
        AT_END, state="Assigning", members=(replace(of_member("m1", 3, 0), client_host="/other"), AT_END.members[1])
    )
    findings = judged(warehouse, described(before=2, descriptions={"g": mixed}, offsets={"g": OFFSETS_AT_END}))
    assert unequal(findings) == [
        ("MOVED_ON", "", "state", "Assigning", "Stable", None),
        ("DIFFERENT", "m1", "client_host", "/other", "/10.0.0.1", None),
    ]


def test_whether_a_topology_is_described_is_compared(warehouse: Warehouse) -> None:
    """A description of the topology of now is stored since offset 5, by the broker and by the log; a group made again
    under the same id has none. A broker without a plugin has none either, and one of before 4.4 does not tell."""
    streams: dict[str, Any] = {"generation": 3, "assignment_epoch": 1, "state": "Empty", "topology_epoch": 2}

    def stored(group_id: str, offset: int, epoch: int, event_index: int = 0) -> dict[str, Any]:
        details = [("stored_topology_epoch", str(epoch)), ("failed_topology_epoch", "-1")]
        return event(group_id, offset, "TOPOLOGY_DESCRIPTION_CHANGED", details=details, event_index=event_index)

    write(
        warehouse,
        {
            GENERATIONS: [
                generation("s", 1, None, "STREAMS", **streams),
                generation("new", 4, None, "STREAMS", **streams),
                generation("other", 1, None, "STREAMS", **streams),
            ],
            EVENTS: [
                *(event("s", 1, "GROUP_CREATED"), stored("s", 3, -2), stored("s", 5, 2)),
                *(event("new", 1, "GROUP_CREATED"), stored("new", 1, 2, 1), event("new", 4, "GROUP_CREATED")),
                *(event("other", 1, "GROUP_CREATED"), stored("other", 2, 1)),
            ],
        },
    )

    def verdicts(status: TopologyStatus, *window: int) -> dict[str, tuple[str, Any, str | None]]:
        empty = [
            GroupDescription(name, "STREAMS", "Empty", (), None, None, 3, 1, 2, status)
            for name in ("s", "new", "other")
        ]
        asked = described(*window, descriptions={it.group_id: it for it in empty})
        findings = judged(warehouse, asked)
        return {it.thing.group_id: (it.verdict.name, it.field, it.reason) for it in findings}

    equal, field = ("EQUAL", None, None), "topology description"
    for status in (TopologyStatus.AVAILABLE, TopologyStatus.ERROR):
        different = ("DIFFERENT", field, None)
        assert verdicts(status) == {"s": equal, "new": different, "other": different}
    assert verdicts(TopologyStatus.NOT_STORED) == {
        "s": ("NOT_IN_LOG", field, Reason.DESCRIPTION_NOT_KEPT),
        "new": equal,
        "other": equal,
    }
    assert set(verdicts(TopologyStatus.NOT_REQUESTED).values()) == {equal}
    for status in (TopologyStatus.AVAILABLE, TopologyStatus.NOT_STORED):  # it was stored while the broker was asked
        assert verdicts(status, 5)["s"] == equal


def test_offsets_of_the_time_of_asking(warehouse: Warehouse) -> None:
    """Commits and deletions between the two log ends, one after another; the answer is one moment of them."""
    write(
        warehouse,
        {
            COMMITS: [
                commit("g", 3, 1),
                commit("g", 4, None),
                commit("g", 5, 2),
                commit("g", 5, 9, partition=1, log_offset=6, applied_log_offset=6),
            ]
        },
    )

    def verdicts(*offsets: int | None) -> list[str]:
        answer = {("t", number): CommittedOffset(it, None, "") for number, it in enumerate(offsets) if it is not None}
        return [it.verdict.name for it in judged(warehouse, described(before=4, offsets={"g": answer}))]

    assert verdicts(1) == verdicts(2) == ["EQUAL"]
    assert verdicts() == []
    assert verdicts(2, 9) == ["EQUAL", "EQUAL"]
    assert sorted(verdicts(1, 9)) == ["EQUAL", "MOVED_ON"]
    assert verdicts(3) == ["MOVED_ON"]
    assert verdicts(2, 9, 5) == ["EQUAL", "EQUAL", "DIFFERENT"]


def test_a_difference_is_named_with_both_sides(warehouse: Warehouse) -> None:
    """An offset, its leader epoch and metadata, one more member, and one partition less."""
    write(warehouse, history())
    broker = replace(AT_END, members=(of_member("m1", 3), AT_END.members[1], of_member("m3", 3)))
    offsets = {**OFFSETS_AT_END, ("t", 1): CommittedOffset(81, None, "m"), ("t", 2): CommittedOffset(1, None, "")}
    found = unequal(judged(warehouse, described(descriptions={"g": broker}, offsets={"g": offsets})))
    assert found == [
        ("DIFFERENT", "", "member count", 3, 2, None),
        ("DIFFERENT", "m3", "exists", True, None, None),
        ("DIFFERENT", "t-0 of m1", "assigned", None, TOPIC_ID, None),
        ("DIFFERENT", "t-1", "offset", (81, None, "m"), (80, None, "m"), None),
        ("DIFFERENT", "t-2", "offset", (1, None, ""), None, None),
    ]


MISSING = CoverageKind.MISSING
GAPS = [
    ([CoverageRange(0, 9, CoverageKind.CAPTURED, 0)], 0, "DIFFERENT", None),
    ([CoverageRange(0, 3, MISSING, 0), CoverageRange(4, 9, CoverageKind.CAPTURED, 0)], 4, "DIFFERENT", None),
    (
        [CoverageRange(0, 3, MISSING, 0), CoverageRange(4, 9, CoverageKind.CAPTURED, 0)],
        2,
        "CANNOT_TELL",
        "offsets 0 to 3 of __consumer_offsets-0 are MISSING",
    ),
    (
        [
            CoverageRange(0, 3, CoverageKind.CAPTURED, 0),
            CoverageRange(4, 4, MISSING, 0),
            CoverageRange(5, 9, CoverageKind.CAPTURED, 0),
        ],
        5,
        "CANNOT_TELL",
        "offsets 4 to 4 of __consumer_offsets-0 are MISSING",
    ),
    (
        [CoverageRange(0, 3, CoverageKind.CAPTURED, 0), CoverageRange(4, 9, CoverageKind.CORRUPT, 0)],
        0,
        "CANNOT_TELL",
        "offsets 4 to 9 of __consumer_offsets-0 are CORRUPT",
    ),
    (
        [
            CoverageRange(0, 3, CoverageKind.CAPTURED, 0),
            CoverageRange(4, 4, CoverageKind.COMPACTED, 0),
            CoverageRange(5, 9, CoverageKind.CAPTURED, 0),
        ],
        0,
        "DIFFERENT",
        None,
    ),
    ([CoverageRange(0, 8, CoverageKind.CAPTURED, 0)], 0, "DIFFERENT", "the log ends at 10, the warehouse at 9"),
]


@pytest.mark.parametrize(("ranges", "start", "verdict", "reason"), GAPS)
def test_what_was_not_captured_is_unknown(
    warehouse: Warehouse, ranges: list[CoverageRange], start: int, verdict: str, reason: str | None
) -> None:
    """A hole which the broker itself does not have, or which tore the ledger's own past; never what is equal."""
    write(warehouse, history())
    cover(warehouse, *ranges)
    offsets = {**OFFSETS_AT_END, ("t", 0): CommittedOffset(31, 4, "")}
    asked = described(descriptions={"g": AT_END}, offsets={"g": offsets}, starts={OFFSETS_LOG: start, SHARE_LOG: 0})
    found = unequal(judged(warehouse, asked))
    assert found == [(verdict, "t-0", "offset", (31, 4, ""), (30, 4, ""), reason)]


def test_a_tombstone_may_have_been_compacted_away(warehouse: Warehouse) -> None:
    """What was written before a range that the cleaner took first may be gone, and what hangs on it with it; what was
    written after it may not, nor may anything have other values."""
    write(warehouse, history())
    captured = CoverageKind.CAPTURED
    cover(
        warehouse,
        CoverageRange(0, 5, captured, 0),
        CoverageRange(6, 6, CoverageKind.COMPACTED, 0),
        CoverageRange(7, 9, captured, 0),
    )
    left = replace(AT_END, members=(of_member("m1", 3, 0),), state="Reconciling", group_epoch=4)
    hole = (
        "a deletion may have been in offsets 6 to 6, "
        "which __consumer_offsets-0 had lost to compaction when it was captured"
    )
    assert unequal(judged(warehouse, described(descriptions={"g": left}, offsets={"g": {}}))) == [
        ("DIFFERENT", "", "group epoch", 4, 3, None),
        ("CANNOT_TELL", "", "member count", 1, 2, hole),
        ("CANNOT_TELL", "", "state", "Reconciling", "Stable", hole),
        ("CANNOT_TELL", "m2", "exists", None, True, hole),
        ("CANNOT_TELL", "t-1 of m2", "assigned", None, TOPIC_ID, hole),
        ("CANNOT_TELL", "t-0", "offset", None, (30, 4, ""), hole),
        ("DIFFERENT", "t-1", "offset", None, (80, None, "m"), None),
    ]
    assert unequal(judged(warehouse, described()))[0] == ("CANNOT_TELL", "", "exists", None, True, hole)


def test_nothing_was_ever_captured(warehouse: Warehouse) -> None:
    """A cluster that has groups and a warehouse that has not seen its log: nothing can be compared."""
    cover(warehouse, log=OFFSETS_LOG)
    cover(warehouse, CoverageRange(0, 0, MISSING, 0))
    found = unequal(judged(warehouse, described(descriptions={"g": AT_END})))
    assert [(it[0], it[2]) for it in found] == [("CANNOT_TELL", "exists")]


ABSENT = [
    ({}, ("DIFFERENT", "exists", None, True, None)),
    ({"g": FORBIDDEN}, ("CANNOT_TELL", None, None, None, "GROUP_AUTHORIZATION_FAILED")),
    ({"g": AT_END}, ("CANNOT_TELL", None, None, None, LEFT_OUT)),
]


@pytest.mark.parametrize(("by_name", "finding"), ABSENT)
def test_a_group_which_the_broker_does_not_list(
    warehouse: Warehouse, by_name: dict[str, GroupDescription | Refusal], finding: tuple[Any, ...]
) -> None:
    """It is asked for by its name: it may not be there, be hidden, or have been left out while its log was loaded."""
    write(warehouse, history() | {COMMITS: []})
    found = unequal(judged(warehouse, described(), FakeAdmin(by_name)))
    assert found == [(finding[0], "", *finding[1:])]


def test_a_group_that_was_deleted_meanwhile(warehouse: Warehouse) -> None:
    """Gone at one of the log ends: equal whether the broker still lists it or not."""
    write(warehouse, {GENERATIONS: [generation("g", 1, 6, protocol_type="consumer")]})
    listed = GroupDescription("g", "CLASSIC", "Empty", (), "consumer", "")
    assert unequal(judged(warehouse, described(before=5, descriptions={"g": listed}))) == []
    assert unequal(judged(warehouse, described(before=5, descriptions={"g": NOT_FOUND}))) == []
    assert unequal(judged(warehouse, described(before=5))) == []
    assert [it[0] for it in unequal(judged(warehouse, described(descriptions={"g": listed})))] == ["DIFFERENT"]


@pytest.mark.parametrize(
    ("event_index", "state", "verdict"),
    [(2, "Empty", "NOT_IN_LOG"), (2, "Stable", "DIFFERENT"), (0, "Empty", "DIFFERENT")],
)
def test_a_group_that_the_broker_has_not_dropped_yet(
    warehouse: Warehouse, event_index: int, state: str, verdict: str
) -> None:
    """It went at a marker, where an old coordinator writes nothing; not at a tombstone, and nobody came since."""
    deleted = event("g", 6, "GROUP_DELETED", event_index=event_index)
    write(warehouse, {GENERATIONS: [generation("g", 1, 6, protocol_type="")], EVENTS: [deleted]})
    listed = GroupDescription("g", "CLASSIC", state, (), "", "")
    found = unequal(judged(warehouse, described(descriptions={"g": listed})))
    assert {it[0] for it in found} == {verdict}
    assert {it[-1] for it in found} == {Reason.NOT_DROPPED_YET if verdict == "NOT_IN_LOG" else None}


def test_a_group_which_the_ledger_lacks(warehouse: Warehouse) -> None:
    """One finding, and not one for each of its members."""
    write(warehouse, {COMMITS: []})
    found = unequal(judged(warehouse, described(descriptions={"g": AT_END})))
    assert found == [("DIFFERENT", "", "exists", True, None, None)]


def test_a_classic_group_in_the_middle_of_a_rebalance(warehouse: Warehouse) -> None:
    """The log has the last generation: what the broker shows of the next one is in no log."""
    m1 = member("g", "m1", 1, None, "CLASSIC")
    write(
        warehouse,
        {
            GENERATIONS: [generation("g", 1, None, state="Stable", protocol_type="consumer", protocol_name="range")],
            MEMBERS: [m1],
            ASSIGNMENTS: [assignment(m1, 0)],
        },
    )
    joining = GroupDescription(
        "g", "CLASSIC", "PreparingRebalance", (GroupMember("m2", None, "c", "/h"),), "consumer", ""
    )
    found = judged(warehouse, described(descriptions={"g": joining}))
    assert {it.verdict for it in found} == {Verdict.NOT_IN_LOG}
    assert {it.reason for it in found} == {Reason.CLASSIC_REBALANCING}
    other = replace(joining, protocol_type="connect")
    assert Verdict.DIFFERENT in {it.verdict for it in judged(warehouse, described(descriptions={"g": other}))}


def test_assignments_that_nobody_can_read_are_not_equal(warehouse: Warehouse) -> None:
    """Neither side has a partition of such a member: that proves nothing. Others of its group are compared."""
    m1, m2 = (member("g", member_id, 1, None, "CLASSIC") for member_id in ("m1", "m2"))
    stable = generation("g", 1, None, state="Stable", protocol_type="consumer", protocol_name="own")
    write(warehouse, {GENERATIONS: [stable], MEMBERS: [m1, m2], ASSIGNMENTS: [assignment(m2, 0)]})
    readable = GroupMember("m2", None, "c", "/h", assigned=frozenset({AssignedPartition(None, "t", 0, None)}))
    members = _classic_member("consumer", _Described("m1", b"\xff\xff own bytes")), readable
    assert (members[0].is_unread, members[0].assigned) == (True, frozenset())
    asked = described(descriptions={"g": GroupDescription("g", "CLASSIC", "Stable", members, "consumer", "own")})
    assignments = [it for it in judged(warehouse, asked) if it.thing.what is What.ASSIGNMENT]
    assert [(it.verdict, it.thing.name, it.reason) for it in assignments] == [
        (Verdict.CANNOT_TELL, "all of m1", UNREAD),
        (Verdict.EQUAL, "t-0 of m2", None),
    ]


class _Described(NamedTuple):
    """A member as DescribeGroups has it."""

    member_id: str
    member_assignment: bytes
    member_metadata: bytes = b""
    group_instance_id: str | None = None
    client_id: str = "c"
    client_host: str = "/h"


def test_what_the_principal_may_not_see_is_unknown(warehouse: Warehouse) -> None:
    """A topic it may not describe is left out of offsets; a group, or its offsets, may be refused whole."""
    write(warehouse, history())
    asked = described(descriptions={"g": AT_END}, offsets={"g": {("t", 0): OFFSETS_AT_END["t", 0]}})
    assert [it[0] for it in unequal(judged(warehouse, asked))] == ["DIFFERENT"]
    unseen = {name: topic for name, topic in TOPICS.items() if name != "t"}
    asked = replace(asked, topics=unseen, offsets={"g": {}}, descriptions={"g": FORBIDDEN})
    assert unequal(judged(warehouse, asked)) == [("CANNOT_TELL", "", None, None, None, "GROUP_AUTHORIZATION_FAILED")]
    hidden = FakeAdmin({}, hidden=["t"])
    asked = replace(asked, descriptions={"g": AT_END})
    found = [it for it in judged(warehouse, asked, hidden) if it.thing.what is What.OFFSET]
    assert [(it.verdict, it.reason) for it in found] == [(Verdict.CANNOT_TELL, HIDDEN)] * 2
    asked = replace(asked, offsets={"g": FORBIDDEN})
    found = [it for it in judged(warehouse, asked) if it.thing.what is What.OFFSET]
    assert [(it.verdict, it.reason) for it in found] == [(Verdict.CANNOT_TELL, "GROUP_AUTHORIZATION_FAILED")]


# --- share partitions


def state(first: int, last: int | None, start_offset: int, **more: Any) -> dict[str, Any]:
    """A record of the state of t-0 in share group s."""
    own = {"group_id": "s", "topic_id": TOPIC_ID, "partition": 0, "topic": "t", "log_offset": first}
    epochs = {"state_epoch": 2, "leader_epoch": 4, "is_complete": True, "record_kind": "UPDATE"}
    return {**between(first, last), **own, **epochs, "start_offset": start_offset, **more}


def in_flight(first: int, last: int | None, offsets: tuple[int, int], code: int, count: int) -> dict[str, Any]:
    """A batch of the same."""
    own = {"group_id": "s", "topic_id": TOPIC_ID, "partition": 0, "topic": "t", "is_complete": True}
    batch = {"first_offset": offsets[0], "last_offset": offsets[1], "delivery_count": count}
    names = {0: "AVAILABLE", 2: "ACKNOWLEDGED", 4: "ARCHIVED"}
    return {**between(first, last), **own, **batch, "delivery_state": names[code], "delivery_state_code": code}


KEY: Final = SharePartitionKey("s", TOPIC_ID, 0)
PLACE: Final = TopicPartitionId(TOPIC_ID, "t", 0)
SHARE_GROUP: Final = GroupDescription("s", "SHARE", "Empty", (), None, "simple", 3, 3)


def share_history() -> dict[str, list[dict[str, Any]]]:
    """t-0 of share group s: a snapshot, then two updates."""
    return {
        GENERATIONS: [generation("s", 1, None, "SHARE", generation=3, assignment_epoch=3)],
        STATES: [state(2, 4, -1, record_kind="SNAPSHOT"), state(4, 6, 0), state(6, None, 5)],
        BATCHES: [
            in_flight(4, 6, (0, 4), 2, 1),
            in_flight(4, None, (5, 9), 0, 1),
            in_flight(6, None, (10, 11), 4, 2),
        ],
        EVENTS: [
            event("s", 3, "SHARE_PARTITIONS_INITIALIZED", details=[("topic_id", TOPIC_ID), ("partitions", "0,1")])
        ],
    }


def of_shares(before: int = END, **more: Any) -> Asked:
    """The broker's word on share group s at the end of the log."""
    batches = (StateBatch(10, 11, 4, 2), StateBatch(5, 6, 0, 1), StateBatch(7, 9, 0, 1))
    answers: dict[str, Any] = {
        "descriptions": {"s": SHARE_GROUP},
        "share_offsets": {"s": {PLACE: ShareOffset(5, 4)}},
        "share_states": {KEY: ShareState(2, 5, batches)},
    }
    return described(before=before, **(answers | more))


def test_share_partitions_are_what_their_coordinator_says(warehouse: Warehouse) -> None:
    """Start offsets, epochs, and batches, which may be cut otherwise; at any state of the time of asking."""
    write(warehouse, share_history())
    findings = judged(warehouse, of_shares())
    assert unequal(findings) == []
    assert Counter(it.thing.what for it in findings) == {What.GROUP: 1, What.SHARE_OFFSET: 1, What.SHARE_STATE: 1}
    middle = ShareState(2, 0, (StateBatch(0, 4, 2, 1), StateBatch(5, 9, 0, 1)))
    asked = of_shares(before=3, share_states={KEY: middle}, share_offsets={"s": {PLACE: ShareOffset(-1, 4)}})
    assert unequal(judged(warehouse, asked)) == []


def test_share_states_that_differ(warehouse: Warehouse) -> None:
    """A batch of another delivery count, another start offset, a state which only one side has."""
    write(warehouse, share_history())
    other = ShareState(2, 5, (StateBatch(5, 9, 0, 2), StateBatch(10, 11, 4, 2)))
    found = unequal(judged(warehouse, of_shares(share_states={KEY: other})))
    assert found == [
        ("DIFFERENT", "t-0", "batches", ((5, 9, 0, 2), (10, 11, 4, 2)), ((5, 9, 0, 1), (10, 11, 4, 2)), None)
    ]
    found = unequal(judged(warehouse, of_shares(share_offsets={"s": {PLACE: ShareOffset(6, 4)}})))
    assert found == [("DIFFERENT", "t-0", "start offset", 6, 5, None)]
    found = unequal(judged(warehouse, of_shares(share_offsets={"s": {}}, share_states={})))
    assert found == [("DIFFERENT", "t-0", "exists", None, True, None)]
    found = unequal(judged(warehouse, of_shares(share_states={KEY: Refusal.of(42)})))
    assert found == [("DIFFERENT", "t-0", "exists", None, True, None)]


def test_share_partitions_which_the_broker_does_not_list(warehouse: Warehouse) -> None:
    """Not noted as initialised, or of a topic that was deleted: what is not listed then is no difference."""
    rows = share_history()
    write(warehouse, rows | {EVENTS: []})
    asked = of_shares(share_offsets={"s": {}}, share_states={})
    assert [(it[0], it[5]) for it in unequal(judged(warehouse, asked))] == [("NOT_IN_LOG", Reason.SHARE_INITIALIZING)]
    gone = replace(asked, topics={name: topic for name, topic in TOPICS.items() if name != "t"})
    assert [(it[0], it[5]) for it in unequal(judged(warehouse, gone))] == [("NOT_IN_LOG", Reason.TOPIC_DELETED)]


def test_a_share_state_without_a_snapshot_is_unknown(warehouse: Warehouse) -> None:
    """Until one has been seen the ledger knows a part of the state only."""
    rows = share_history()
    rows[STATES][-1]["is_complete"] = False
    write(warehouse, rows)
    asked = of_shares(share_states={KEY: ShareState(2, 5, ())})
    assert [(it[0], it[5]) for it in unequal(judged(warehouse, asked))] == [("CANNOT_TELL", NO_SNAPSHOT)]


def test_share_states_need_a_right_and_are_left_out_without(warehouse: Warehouse) -> None:
    """It is said once, and is no difference; any other refusal is one that cannot be judged."""
    write(warehouse, share_history())
    asked = of_shares(share_states={KEY: Refusal.of(31)})
    findings = judged(warehouse, asked)
    assert unequal(findings) == []
    assert What.SHARE_STATE not in {it.thing.what for it in findings}
    assert "ClusterAction" in " ".join(print_findings(findings, asked, "table", False, io.StringIO()))
    found = unequal(judged(warehouse, of_shares(share_states={KEY: Refusal.of(3)})))
    assert found == [("CANNOT_TELL", "t-0", None, None, None, "UNKNOWN_TOPIC_OR_PARTITION")]


def test_batches_are_joined_where_no_consumer_can_tell() -> None:
    """Neighbours of one state and count, in whatever order; no others."""
    assert joined_batches([(5, 9, 0, 1), (0, 4, 0, 1)]) == ((0, 9, 0, 1),)
    apart = ((0, 4, 0, 1), (5, 9, 0, 2), (10, 11, 2, 2), (13, 14, 2, 2))
    assert joined_batches(reversed(apart)) == apart


# --- what is printed


def some_findings(group_id: str = "g") -> list[Finding]:
    """One of each verdict."""
    offset = Thing(What.OFFSET, group_id, "t-0")
    batches = ((0, 4, 0, 1), (5, 9, 2, 1)), ((0, 4, 0, 2), (5, 9, 2, 1))
    return [
        Finding(Verdict.EQUAL, Thing(What.GROUP, group_id)),
        Finding(Verdict.MOVED_ON, Thing(What.MEMBER, group_id, "m"), "member_epoch", 4, 3),
        Finding(Verdict.DIFFERENT, Thing(What.MEMBER, group_id, "m"), "client_host", "/a", "/b"),
        Finding(
            Verdict.NOT_IN_LOG, Thing(What.ASSIGNMENT, group_id, "t-0 of m"), "assigned", None, "id", "TOPIC_DELETED"
        ),
        Finding(Verdict.DIFFERENT, offset, "offset", (5, 2, "x"), (4, None, "")),
        Finding(Verdict.CANNOT_TELL, Thing(What.SHARE_OFFSET, group_id), reason="GROUP_AUTHORIZATION_FAILED"),
        Finding(Verdict.DIFFERENT, Thing(What.SHARE_STATE, group_id, "t-0"), "batches", *batches),
    ]


def printed(output_format: str, verbose: bool = False, group_id: str = "g") -> str:
    """As the command prints them."""
    out = io.StringIO()
    assert list(print_findings(some_findings(group_id), described(), output_format, verbose, out)) == []
    return out.getvalue()


def test_a_thing_counts_once_by_its_worst() -> None:
    """A member with two differences is one member."""
    rows = {row[0]: row[1:] for row in summary_rows(some_findings())}
    assert rows["group"] == (1, 1, 0, 0, 0, 0)
    assert rows["member"] == (1, 0, 0, 0, 0, 1)
    assert rows["assignment"] == (1, 0, 1, 0, 0, 0)
    assert rows["share-offset"] == (1, 0, 0, 0, 1, 0)


def test_the_table_begins_with_its_summary() -> None:
    """Counts by kind, then what is not equal, with both sides; of batches those which differ."""
    sentence, summary, rows = printed("table").split("\n\n")
    assert sentence == "DIFFERENT: 3 DIFFERENT, 1 CANNOT_TELL, 1 NOT_IN_LOG, 1 EQUAL of 6 compared"
    assert [line.split()[0] for line in summary.splitlines()] == ["WHAT", *What]
    assert [line.split()[0] for line in rows.splitlines()[1:]] == [it.verdict.name for it in some_findings()[1:]]
    last = rows.splitlines()[-1]
    assert "0-4 AVAILABLE 1" in last and "0-4 AVAILABLE 2" in last and "ACKNOWLEDGED" not in last
    assert "5 (leader epoch 2, metadata 'x')" in rows


def test_json_and_csv_have_the_rows_alone() -> None:
    """One object or line each; all things with --verbose."""
    rows = [json.loads(line) for line in printed("json").splitlines()]
    assert [row["VERDICT"] for row in rows] == [it.verdict.name for it in some_findings()[1:]]
    assert rows[1] | {"WHAT": "member", "OF": "m", "FIELD": "client_host", "BROKER": "/a", "LEDGER": "/b"} == rows[1]
    assert len(list(csv.DictReader(io.StringIO(printed("csv"))))) == len(rows)
    assert len(printed("json", verbose=True).splitlines()) == len(rows) + 1


def test_ids_are_shown_and_obeyed_by_nobody() -> None:
    """Whatever a group is called, it is one line of the table, and the same text in JSON."""
    lines = len(printed("table").splitlines())
    for group_id in HOSTILE:
        assert len(printed("table", group_id=group_id).splitlines()) == lines
        assert json.loads(printed("json", group_id=group_id).splitlines()[0])["GROUP"] == group_id


def test_there_is_nothing_to_verify_without_a_cluster(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says how to name it, before anything starts."""
    monkeypatch.delenv("GROUPLEDGER_BOOTSTRAP_SERVERS", raising=False)
    assert main(["verify"]) == 2
    assert "--bootstrap-server" in capfd.readouterr().err


def test_another_cluster_is_not_compared(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything would be different: with --captured too, the cluster has to be the one that was captured."""
    keep_identities(
        ClusterTables(warehouse, CLUSTER), [Identity(CLUSTER_ID_KIND, "", "mine", "kafka")], datetime.now(UTC)
    )
    monkeypatch.setattr("jobs.queries.verify.verify.ask", lambda *_: described())
    with FakeKafka() as kafka:
        values = {"bootstrap_servers": kafka.address, "cluster_id": CLUSTER, "warehouse": warehouse.root}
        with pytest.raises(SourceError, match="its cluster id is fake, and that of"):
            run_verify(
                load_settings(values, environment={}),
                lambda: ClusterTables(warehouse, CLUSTER),
                group_ids=None,
                output_format="table",
                verbose=False,
                say=lambda _: None,
                out=io.StringIO(),
            )
