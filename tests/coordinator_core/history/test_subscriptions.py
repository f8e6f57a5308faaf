"""Groups whose members have no topic in common: said where it begins and where it ends, however the log is cut."""

import json
from collections.abc import Mapping, Sequence

import pytest

from coordinator_core.history import subscriptions
from coordinator_core.history.groups import GroupHistory
from coordinator_core.history.operations import GroupRecord, Operation
from coordinator_core.history.rows import SUBSCRIPTIONS_APART, SUBSCRIPTIONS_TOGETHER, EventRow
from coordinator_core.history.views import Member, Topics
from coordinator_core.limits import APPLICATION_NAMES_MAX
from coordinator_core.replay.dispatch import Group
from schemas.consumer_offsets import RecordType
from tests.coordinator_core.group_records import Record, record
from tests.coordinator_core.inference.group_lives import GROUP, classic, epoch, goes

Reported = Sequence[tuple[int, list[Record]]]

MEMBER_TYPES = {"consumer": RecordType.CONSUMER_GROUP_MEMBER_METADATA, "share": RecordType.SHARE_GROUP_MEMBER_METADATA}


def joins(member_id: str, *topics: str, kind: str = "consumer", regex: str | None = None) -> list[Record]:
    """A member comes to a group, or subscribes to other topics."""
    value: dict[str, object] = {
        "client_id": f"client-{member_id}",
        "client_host": "/h",
        "subscribed_topic_names": topics,
    }
    if kind == "consumer":
        value |= {"instance_id": None, "subscribed_topic_regex": regex, "rebalance_timeout_ms": 1}
    return [record(MEMBER_TYPES[kind], {"group_id": GROUP, "member_id": member_id}, value)]


def generation(number: int, **topics: Sequence[str]) -> list[Record]:
    """A generation of a classic group whose members subscribe to these topics."""
    return classic(number, dict.fromkeys(topics, ()), topics=topics)


def events_of(reported: Reported, cut: int | None = None) -> list[EventRow]:
    """What is said of subscriptions, be it that a night ends before the operation `cut`."""
    history, offset = GroupHistory(), 0
    events: list[EventRow] = []
    for number, (at, records) in enumerate(reported):
        if number == cut:
            events += history.take().events
            history = GroupHistory(saved=history.save())
        operation = [GroupRecord(offset + index, *one) for index, one in enumerate(records)]
        offset += len(records)
        history.apply(Operation(GROUP, at, operation[-1].offset, operation))
    events += history.take().events
    return [event for event in events if event.event_type in {SUBSCRIPTIONS_APART, SUBSCRIPTIONS_TOGETHER}]


def said(reported: Reported) -> list[tuple[int, str]]:
    """The same as time and kind; it does not depend on where nights are cut."""
    events = events_of(reported)
    for cut in range(1, len(reported)):
        assert events_of(reported, cut) == events
    return [(event.at, event.event_type.removeprefix("SUBSCRIPTIONS_")) for event in events]


CLASSIC: Reported = [
    (0, generation(1, a=["orders"])),
    (1, generation(2, a=["orders"], b=["orders", "refunds"])),
    (2, generation(3, a=["orders"], b=["orders", "refunds"], c=["mails"])),
    (3, generation(4, a=["orders"], b=["orders", "refunds"], c=["mails"], d=["mails"])),
    (4, generation(5, a=["orders"], b=["orders", "refunds"])),
]
BRIDGED: Reported = [
    (0, generation(1, a=["orders"], c=["mails"])),
    (1, generation(2, a=["orders"], b=["orders", "mails"], c=["mails"])),
    (2, generation(3, a=["orders"], b=["orders"], c=["mails"])),
    (3, generation(4, a=["orders", "mails"], b=["orders"], c=["mails"])),
]


def modern(kind: str) -> Reported:
    """The same story of a group of the consumer protocol, or of a share group."""
    raised = epoch(2) if kind == "consumer" else []
    return [
        (0, [*joins("a", "orders", kind=kind), *raised]),
        (1, joins("b", "orders", "refunds", kind=kind)),
        (2, joins("c", "mails", kind=kind)),
        (3, joins("c", "mails", "orders", kind=kind)),
        (4, joins("c", "mails", kind=kind)),
        (5, joins("d", "invoices", kind=kind)),
    ]


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        (CLASSIC, [(2, "APART"), (4, "TOGETHER")]),
        (BRIDGED, [(0, "APART"), (1, "TOGETHER"), (2, "APART"), (3, "TOGETHER")]),
        (modern("consumer"), [(2, "APART"), (3, "TOGETHER"), (4, "APART"), (5, "APART")]),
        (modern("share"), [(2, "APART"), (3, "TOGETHER"), (4, "APART"), (5, "APART")]),
        ([*modern("consumer")[:3], (3, [*goes("c"), *epoch(3)])], [(2, "APART"), (3, "TOGETHER")]),
        ([(0, generation(1, a=["orders"], b=["orders"]))], []),
        ([(0, generation(1, a=["orders"], b=[]))], []),
        ([(0, [*joins("a", "orders"), *epoch(2)]), (1, joins("b", regex="mails.*"))], []),
    ],
    ids=["classic", "bridged", "consumer", "share", "leaves", "the same topics", "no topics", "a pattern"],
)
def test_members_without_a_topic_in_common(reported: Reported, expected: list[tuple[int, str]]) -> None:
    """It begins with the member that shares no topic with the others, directly or through others, and ends where it
    goes or shares one; topics that nobody knows may be shared."""
    assert said(reported) == expected


def test_a_group_that_goes_has_no_applications() -> None:
    """With the group's tombstone that is over, too."""
    gone = record(RecordType.GROUP_METADATA, {"group": GROUP}, None)
    assert said([*CLASSIC[:3], (3, [gone])]) == [(2, "APART"), (3, "TOGETHER")]


def test_which_members_have_which_topics() -> None:
    """Each application with its topics and clients, and the member by which the group came apart."""
    (event, _) = events_of(CLASSIC)
    assert event.member_id == "c"
    found: list[Mapping[str, object]] = json.loads(event.details["applications"])
    assert [(one["topics"], one["clients"], one["member_count"]) for one in found] == [
        (["mails"], ["client-c"], 1),
        (["orders", "refunds"], ["client-a", "client-b"], 2),
    ]


def test_names_are_bounded() -> None:
    """Of thousands of topics some are named, and all are counted."""
    many = [f"t{number:04}" for number in range(3000)]
    (event,) = events_of([(0, generation(1, a=["orders"], b=many))])
    found = json.loads(event.details["applications"])
    assert [len(one["topics"]) for one in found] == [1, APPLICATION_NAMES_MAX]
    assert found[1]["topic_count"] == 3000


def test_a_member_that_joins_costs_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not a pass over all members of a large group."""
    looked_at: list[str] = []
    topics_of = subscriptions._topics

    def counted(group: Group, member: Member) -> Topics:
        looked_at.append(member.member_id)
        return topics_of(group, member)

    monkeypatch.setattr(subscriptions, "_topics", counted)
    assert events_of([(number, joins(f"m{number:03}", "orders")) for number in range(300)]) == []
    assert len(looked_at) <= 2 * 300
