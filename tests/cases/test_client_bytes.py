"""What clients of many makers put into a group's record: read as far as it goes, and said where it cannot be."""

import struct
from pathlib import Path
from typing import Any, Final

import pytest

from coordinator_core.bytes.client_protocols import Assignment, Subscription, encode_assignment, encode_subscription
from coordinator_core.inference.facts.settings import InferenceSettings
from jobs.cli_enums import Listing, View
from jobs.queries.answers.audit_report import Span, run_audit_report
from jobs.queries.answers.describe import run_describe
from jobs.queries.answers.owner import run_owner
from tests.answers import printed
from tests.cases.client_logs import FIRST_MS, Client, Generation, batches_of, log_of
from tests.cases.harness import CASES, Ledger
from tests.cases.judged import Judged
from tests.coordinator_core.inference.group_nights import after_nights

GOOD: Final = encode_subscription(Subscription(0, ("events",)))
JSON: Final = b'{"instanceId":"7","groups":["events"]}'


def text(value: str) -> bytes:
    """A string with its length, as a subscription has it."""
    return struct.pack(">h", len(value)) + value.encode()


def topics(version: int, *names: str) -> bytes:
    """The beginning of a subscription."""
    return struct.pack(">hi", version, len(names)) + b"".join(map(text, names))


def given(version: int, topic: str, *partitions: int) -> bytes:
    """The beginning of an assignment."""
    return (
        struct.pack(">hi", version, 1)
        + text(topic)
        + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    )


NO_BYTES: Final = struct.pack(">i", -1)
EMPTY_BYTES: Final = struct.pack(">i", 0)

SUBSCRIPTIONS: Final = {
    "kafka-go: version 1 without owned partitions": topics(1, "events") + NO_BYTES,
    "faust: version 4 of the old layout": topics(4, "events") + struct.pack(">i", len(JSON)) + JSON,
    "kafkajs: a version of the assignor's own": topics(11, "events") + EMPTY_BYTES,
    "sarama: version 2 without a generation": topics(2, "events") + NO_BYTES + struct.pack(">i", 0),
    "version 3 without a rack": topics(3, "events") + NO_BYTES + struct.pack(">ii", 0, 5),
    "no user data": topics(0, "events"),
    "user data longer than the bytes": topics(0, "events") + struct.pack(">i", 99) + b"x",
    "a version below 0": topics(-1, "events") + NO_BYTES,
}
NO_SUBSCRIPTIONS: Final = {
    "no bytes": b"",
    "one byte": b"\x00",
    "a version alone": b"\x00\x00",
    "JSON": JSON,
    "topics cut in their middle": topics(0, "events", "more")[:-2],
    "a number of topics below 0": struct.pack(">hi", 0, -5),
    "more topics than bytes": struct.pack(">hi", 0, 2**31 - 1),
}
ASSIGNMENTS: Final = {
    "platformatic: no user data": given(0, "events", 0, 1),
    "version 1 without user data": given(1, "events", 0, 1),
    "user data longer than the bytes": given(3, "events", 0, 1) + struct.pack(">i", 99),
    "a version below 0": given(-7, "events", 0, 1) + NO_BYTES,
}
NO_ASSIGNMENTS: Final = {
    "one byte": b"\x00",
    "JSON": JSON,
    "partitions cut in their middle": given(0, "events", 0, 1)[:-2],
    "a number of topics below 0": struct.pack(">hi", 0, -1),
    "a number of partitions below 0": struct.pack(">hi", 0, 1) + text("events") + struct.pack(">i", -1),
}


@pytest.mark.parametrize("name", SUBSCRIPTIONS)
def test_a_subscription_is_read_as_far_as_it_goes(name: str) -> None:
    """Its topics are there, what is missing has no value, and one sentence says what is odd."""
    from coordinator_core.bytes.client_protocols import read_subscription

    read = read_subscription(SUBSCRIPTIONS[name])
    assert read.subscription is not None and read.oddity is not None
    assert read.subscription.topics == ("events",)
    assert read.subscription.rack_id is None
    assert not read.oddity.is_unread


@pytest.mark.parametrize("name", NO_SUBSCRIPTIONS)
def test_a_subscription_without_readable_topics_has_none(name: str) -> None:
    """None, not an empty list; a list that is cut is not taken for the whole."""
    from coordinator_core.bytes.client_protocols import read_subscription

    read = read_subscription(NO_SUBSCRIPTIONS[name])
    assert read.subscription is None and read.oddity is not None and read.oddity.is_unread


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_an_assignment_is_read_as_far_as_it_goes(name: str) -> None:
    """Topics and partitions are all there."""
    from coordinator_core.bytes.client_protocols import read_assignment

    read = read_assignment(ASSIGNMENTS[name])
    assert read.assigned == (("events", (0, 1)),)
    assert read.oddity is not None and not read.oddity.is_unread


@pytest.mark.parametrize("name", NO_ASSIGNMENTS)
def test_an_assignment_that_cannot_be_read_is_not_an_empty_one(name: str) -> None:
    """No bytes at all are an empty one: the leader left the member out."""
    from coordinator_core.bytes.client_protocols import read_assignment

    read = read_assignment(NO_ASSIGNMENTS[name])
    assert read.assigned is None and read.oddity is not None and read.oddity.is_unread
    assert read_assignment(b"") == ((), None)


@pytest.mark.parametrize("trailing", [b"", b"\x00", b"\xff\xff\xff\xff"])
def test_bytes_behind_the_last_field_are_not_odd(trailing: bytes) -> None:
    """Kafka's readers ignore them."""
    from coordinator_core.bytes.client_protocols import read_assignment, read_subscription

    assert read_subscription(encode_subscription(Subscription(3, ("events",))) + trailing).oddity is None
    assert read_assignment(encode_assignment(Assignment(1, (("events", (0,)),))) + trailing).oddity is None


def test_an_assignment_without_user_data(ledger: Ledger) -> None:
    """platformatic/kafka#284: owners, moves and partitions are all known, and one note says how the client writes."""
    night = ledger.night(CASES / "unread-assignment" / "logs")
    owned = sorted((row["member_id"], row["partition"]) for row in ledger.rows("gold.partition_owners"))
    assert owned == [("pm-1", 0), ("pm-1", 1), ("pm-1", 2), ("pm-2", 2)]
    second = max(ledger.rows("gold.rebalances"), key=lambda row: row["to_generation"])
    assert (second["partitions_total"], second["partitions_moved"], second["confidence"]) == (3, 1, "CERTAIN")
    (note,) = ledger.rows("gold.log_anomalies")
    assert (note["rule"], note["category"]) == ("CLIENT_LAYOUT", "CLIENT")
    assert "without user_data; clients like 'plt', protocol 'roundrobin'" in note["details"]
    assert list(night.facts["found"]["new"]["clients"].values()) == [1]
    assert "rules" not in night.facts["found"]["new"]


@pytest.fixture
def unread(ledger: Ledger, tmp_path: Path) -> Ledger:
    """A group whose leader writes assignments of its own, for two generations; then it writes them as others do."""
    secret = Client(GOOD, JSON)
    plain = Client(GOOD, encode_assignment(Assignment(0, (("events", (0,)),))))
    log_of(
        tmp_path / "logs",
        "own",
        [
            Generation(1, {"a": secret}, 0),
            Generation(2, {"a": secret._replace(assignment=JSON + b" ")}, 60_000),
            Generation(3, {"a": plain}, 120_000),
            Generation(4, {"a": plain._replace(subscription=JSON)}, 180_000),
            Generation(5, {"a": plain._replace(subscription=JSON + b" ")}, 240_000),
        ],
    )
    ledger.night(tmp_path / "logs")
    return ledger


def test_what_is_not_known_is_null(unread: Ledger) -> None:
    """Of the generation itself and of what the next one moved; a cause is not certain there, and no topics changed."""
    rows = {row["to_generation"]: row for row in unread.rows("gold.rebalances")}
    assert [rows[number]["partitions_total"] for number in range(1, 6)] == [None, None, 1, 1, 1]
    assert [rows[number]["partitions_moved"] for number in range(1, 6)] == [None, None, None, 0, 0]
    assert "CERTAIN" not in {rows[number]["confidence"] for number in range(1, 6)}
    assert {rows[number]["cause"] for number in range(2, 6)} == {"UNKNOWN"}
    (member,) = unread.rows("silver.group_members")
    assert member["subscribed_topics"] is None
    unread_members = {row["generation"]: row["unread_members"] for row in unread.rows("silver.group_generations")}
    assert unread_members == {1: ["a"], 2: ["a"], 3: [], 4: [], 5: []}


def test_a_kind_of_client_is_said_once(unread: Ledger) -> None:
    """Not once a member and generation, and not as a broken rule of the coordinators."""
    notes = unread.rows("gold.log_anomalies")
    assert {row["category"] for row in notes} == {"CLIENT"}
    assert sorted(row["details"].split(" ")[0] for row in notes) == [
        "ConsumerProtocolAssignment",
        "ConsumerProtocolSubscription",
    ]


def answers(unread: Ledger, minute: float) -> dict[str, Any]:
    """What owner, describe and audit say of a minute."""
    at_ms = FIRST_MS + int(minute * 60_000)
    asked: dict[str, Any] = {"tables": unread.tables, "output_format": "table"}
    owner, remark = printed(run_owner, topic="events", partition=0, at_ms=at_ms, **asked)
    described, _ = printed(run_describe, view=View.MEMBERS, at_ms=at_ms, group_ids=["own"], **asked)
    audited, is_complete = printed(run_audit_report, listing=Listing.OWNERS, span=Span(at_ms, at_ms + 1), **asked)
    return {
        "remark": remark,
        "owner": owner,
        "described": described,
        "audited": audited,
        "is_complete": is_complete,
    }


def test_answers_name_groups_whose_assignments_cannot_be_read(unread: Ledger) -> None:
    """No "no group was ever assigned", no COMPLETE list of owners, no count of 0 partitions."""
    said = answers(unread, 0.5)
    assert "'own'" in "".join(said["remark"]) and "no group was ever" not in "".join(said["remark"])
    assert not said["is_complete"] and "'own'" in said["audited"]
    assert said["described"].splitlines()[-1].split()[-1] == "-"
    assert "Warning: the assignment of 1 member of Consumer group 'own' cannot be read." in said["described"]


def test_answers_of_a_time_that_can_be_read_have_no_caveat(unread: Ledger) -> None:
    """The group wrote its assignments as others do by then."""
    said = answers(unread, 2.5)
    assert not said["remark"] and said["owner"]
    assert "cannot be read" not in said["audited"] and "own" in said["audited"]
    assert said["described"].splitlines()[-1].split()[-1] == "1"


def test_a_restarted_client_with_other_user_data_changed_no_subscription(judged: Judged) -> None:
    """faust: version 4 of the old layout, and user data that differ in each generation."""
    assignment = encode_assignment(Assignment(0, (("events", (0,)),)))

    def faust(number: int) -> Client:
        user_data = JSON + b" " * number
        return Client(topics(4, "events") + struct.pack(">i", len(user_data)) + user_data, assignment)

    generations = [Generation(number, {"a": faust(number)}, number * 60_000) for number in (1, 2, 3)]
    judged.night(batches_of("faust", generations))
    (member,) = judged.rows("silver.group_members")
    assert member["subscribed_topics"] == ["events"]
    assert "SUBSCRIPTION_CHANGED" not in {row["cause"] for row in judged.rows("gold.rebalances")}
    assert len(judged.rows("gold.log_anomalies")) == 1


def test_nights_say_a_note_once(ledger: Ledger, tmp_path: Path) -> None:
    """What a night said of a kind of client the next one does not say again."""
    client = Client(SUBSCRIPTIONS["kafka-go: version 1 without owned partitions"], given(0, "events", 0))
    later = client._replace(assignment=given(0, "events", 0, 1))
    first = Generation(1, {"a": client}, 0)
    second = Generation(2, {"a": later, "b": later._replace(client_id="app-2")}, 60_000)
    ledger.night(log_of(tmp_path / "one", "go", [first]))
    assert len(ledger.rows("gold.log_anomalies")) == 2
    ledger.night(log_of(tmp_path / "both", "go", [first, second]), number=2)
    assert len(ledger.rows("silver.group_generations")) == 2
    assert len(ledger.rows("gold.log_anomalies")) == 2


MIXED: Final = [
    Generation(1, {"a": Client(GOOD, given(0, "events", 0, 1) + NO_BYTES)}, 0),
    # three minutes of which nobody can say who had partition 1
    Generation(2, {"a": Client(GOOD, given(0, "events", 0) + NO_BYTES), "b": Client(GOOD, JSON)}, 60_000),
    Generation(3, {"a": Client(GOOD, given(0, "events", 0) + NO_BYTES)}, 120_000),
    Generation(4, {"a": Client(GOOD, given(0, "events", 0, 1) + NO_BYTES)}, 240_000),
    # and one in which nobody had it; a day later it has an owner again
    Generation(5, {"a": Client(GOOD, given(0, "events", 0) + NO_BYTES)}, 300_000),
    Generation(6, {"a": Client(GOOD, given(0, "events", 0, 1) + NO_BYTES)}, 360_000),
    Generation(7, {"a": Client(GOOD, given(0, "events", 0) + NO_BYTES), "b": Client(GOOD, JSON)}, 90_000_000),
    Generation(8, {"a": Client(GOOD, given(0, "events", 0, 1) + NO_BYTES)}, 180_000_000),
]


def test_time_of_which_nobody_knows_who_owned_a_partition_is_not_time_without_an_owner(judged: Judged) -> None:
    """A gap is reported where all assignments within it can be read; however nights are cut."""
    batches = batches_of("mixed", MIXED)
    judged.night(batches)
    gaps = [
        (row["from_generation"], row["gap_before_ms"])
        for row in judged.rows("gold.partition_owners")
        if row["partition"] == 1
    ]
    assert sorted(gaps) == [(1, None), (4, None), (6, 60_000), (8, None)]
    assert sum(row["unowned_partition_ms"] for row in judged.rows("gold.rebalances")) == 60_000
    for cuts in ((2,), (7,), (1, 3, 4, 5, 6, 7)):
        after_nights(batches, cuts, InferenceSettings())
