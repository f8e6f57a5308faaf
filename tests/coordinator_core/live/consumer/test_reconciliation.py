"""Tests of a member's way to its target (CurrentAssignmentBuilder), state by state."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from immutables import Map

from coordinator_core.live.consumer.reconciliation import reconcile
from coordinator_core.live.consumer.target import Target
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.coordinator.modern_messages import TopicPartitions
from coordinator_core.live.coordinator.operation import Context
from coordinator_core.live.coordinator.records import CoordinatorRecord
from coordinator_core.live.coordinator.shard import GroupCoordinator
from coordinator_core.replay.consumer.state import ClassicMemberMetadata, ConsumerGroup, ConsumerMember, MemberState
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.consumer.members import A, B, C
from tests.coordinator_core.logs import CountingLog

STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState
TOPICS = {"a": A, "b": B, "c": C}


def partition_epochs(text: str, epoch: int) -> dict[str, dict[int, int]]:
    """`a0 b1@3`: topic id -> partition -> epoch, `epoch` where none is given."""
    topics: dict[str, dict[int, int]] = {}
    for item in text.split():
        place, _, at = item.partition("@")
        topics.setdefault(TOPICS[place[0]], {})[int(place[1:])] = int(at or epoch)
    return topics


def partitions(text: str) -> dict[str, tuple[int, ...]]:
    return {topic_id: tuple(epochs) for topic_id, epochs in partition_epochs(text, 0).items()}


def text_of(assigned: Mapping[str, Mapping[int, int]]) -> str:
    letters = {topic_id: letter for letter, topic_id in TOPICS.items()}
    return " ".join(
        sorted(
            f"{letters[topic]}{number}@{epoch}"
            for topic, epochs in assigned.items()
            for number, epoch in epochs.items()
        )
    )


class Case(NamedTuple):
    """A member at epoch 5 (before: 4) with what it has; others hold `taken`. The target is of epoch 6."""

    name: str
    state: MemberState
    assigned: str
    pending: str
    target: str
    owned: str | None
    taken: str
    expected: str
    """State, epoch, assigned, pending revocation; or "-" for no change."""
    changed: bool = False
    subscribed: str = "ab"
    target_epoch: int = 6


CASES = [
    Case("nothing to do", STABLE, "a0", "", "a0", None, "", "-", target_epoch=5),
    Case("a new epoch, the same target", STABLE, "a0", "", "a0", None, "", "STABLE 6: a0@5 | "),
    Case("more is free", STABLE, "a0", "", "a0 b0 b1", None, "", "STABLE 6: a0@5 b0@6 b1@6 | "),
    Case("more is taken", STABLE, "a0", "", "a0 b0", None, "b0", "UNRELEASED_PARTITIONS 6: a0@5 | "),
    Case("some is free", STABLE, "a0", "", "a0 b0 b1", None, "b0", "UNRELEASED_PARTITIONS 6: a0@5 b1@6 | "),
    Case("less", STABLE, "a0 a1", "", "a0", None, "", "UNREVOKED_PARTITIONS 5: a0@5 | a1@5"),
    Case("less, and owned", STABLE, "a0 a1", "", "a0", "a0 a1", "", "UNREVOKED_PARTITIONS 5: a0@5 | a1@5"),
    Case("less, not owned any more", STABLE, "a0 a1", "", "a0", "a0", "", "STABLE 6: a0@5 | "),
    Case("first give, then take", STABLE, "a0 a1", "", "a0 b0", "a1", "", "UNREVOKED_PARTITIONS 5: a0@5 | a1@5"),
    Case("give and take at once", STABLE, "a0 a1", "", "a0 b0", "", "", "STABLE 6: a0@5 b0@6 | "),
    Case("target of a topic not read", STABLE, "a0", "", "a0 c0", None, "", "STABLE 6: a0@5 | "),
    Case("owns what it must give up", UNREVOKED, "a0", "a1@3", "a0", "a0 a1", "", "-"),
    Case("does not say", UNREVOKED, "a0", "a1@3", "a0", None, "", "-"),
    Case("has given it up", UNREVOKED, "a0", "a1@3", "a0 b0", "a0", "", "STABLE 6: a0@5 b0@6 | "),
    Case("given up, and wanted again", UNREVOKED, "a0", "a1@3", "a0 a1", "a0", "", "STABLE 6: a0@5 a1@6 | "),
    Case("given up, more to give", UNREVOKED, "a0 b0", "a1@3", "b0", "a0", "", "UNREVOKED_PARTITIONS 5: b0@5 | a0@5"),
    Case("not free yet", UNRELEASED, "a0", "", "a0 b0", None, "b0", "UNRELEASED_PARTITIONS 5: a0@5 | ", target_epoch=5),
    Case("free now", UNRELEASED, "a0", "", "a0 b0", None, "", "STABLE 5: a0@5 b0@5 | ", target_epoch=5),
    Case("waited for what is not wanted any more", UNRELEASED, "a0", "", "a0", None, "b0", "STABLE 6: a0@5 | "),
    Case("reads less", STABLE, "a0 b0", "", "a0 b0", None, "", "UNREVOKED_PARTITIONS 5: a0@5 | b0@5", True, "a", 5),
    Case("reads less, does not own it", STABLE, "a0 b0", "", "a0 b0", "a0", "", "STABLE 5: a0@5 | ", True, "a", 5),
    Case("reads nothing", STABLE, "a0", "", "a0", None, "", "UNREVOKED_PARTITIONS 5:  | a0@5", True, "", 5),
    Case("reads nothing and has nothing", STABLE, "", "", "", None, "", "STABLE 5:  | ", True, "", 5),
    Case("reads more", STABLE, "a0", "", "a0", None, "", "-", True, "abc", 5),
    Case(
        "reads less while it gives up", UNREVOKED, "a0 b0", "a1@3", "a0", None, "",
        "UNREVOKED_PARTITIONS 5: a0@5 | a1@3 b0@5", True, "a",
    ),
    Case(
        "reads less of a topic of which it gives up", UNREVOKED, "a0 b0", "b1@3", "a0", "b1", "",
        "UNREVOKED_PARTITIONS 5: a0@5 | b0@5 b1@3", True, "a",
    ),
    Case("a state of later brokers", UNKNOWN, "a0", "", "a0", "", "", "STABLE 6: a0@5 | "),
]  # fmt: skip


def run(case: Case, **fields: object) -> tuple[ConsumerMember, ConsumerMember, list[CoordinatorRecord], Context]:
    member = ConsumerMember(
        "m",
        member_epoch=5,
        previous_member_epoch=4,
        state=case.state,
        subscribed_topic_names=tuple(case.subscribed),
        rebalance_timeout_ms=1000,
        assigned=partition_epochs(case.assigned, 5),
        pending_revocation=partition_epochs(case.pending, 5),
        **fields,  # type: ignore[arg-type]
    )
    places = [(topic, number) for topic, numbers in partitions(case.taken).items() for number in numbers]
    mine = [
        (topic, number)
        for part in (member.assigned, member.pending_revocation)
        for topic in part
        for number in part[topic]
    ]
    group = ConsumerGroup(
        "g", members=Map({"m": member}), owners=Map({**dict.fromkeys(places, "other"), **dict.fromkeys(mine, "m")})
    )
    image = image_of([Topic(name, topic_id, 9) for name, topic_id in TOPICS.items()])
    context = Context(GroupCoordinator((), now_ms=0, image=image, log=CountingLog()), 0)
    owned = None if case.owned is None else [TopicPartitions(t, n) for t, n in partitions(case.owned).items()]
    records: list[CoordinatorRecord] = []
    target = Target(case.target_epoch, partitions(case.target))
    after = reconcile(context, group, member, target, owned, records, subscription_changed=case.changed)
    return member, after, records, context


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_reconcile(case: Case) -> None:
    """State, epoch and partitions after one heartbeat; a record where the member is another one than before."""
    before, after, records, context = run(case)
    if case.expected == "-":
        assert after is before
        assert records == []
        return
    shown = f"{after.state.name} {after.member_epoch}: {text_of(after.assigned)} | {text_of(after.pending_revocation)}"
    assert shown == case.expected
    assert after.previous_member_epoch == 5
    assert [record.key.member_id for record in records] == ["m"]
    timer = context.coordinator.timers.get("rebalance-timeout-g-m")
    assert (timer is not None) == (after.state == UNREVOKED)


def test_a_member_of_the_classic_protocol_has_no_rebalance_timeout() -> None:
    """It has to rejoin and to sync in time instead."""
    case = next(case for case in CASES if case.name == "less")
    _, after, _, context = run(case, classic_member_metadata=ClassicMemberMetadata())
    assert after.state == UNREVOKED
    assert len(context.coordinator.timers) == 0


@pytest.mark.parametrize("owned", ["a0", None])
def test_a_state_of_later_brokers_fences_who_owns_something(owned: str | None) -> None:
    """Or may own something."""
    case = Case("", UNKNOWN, "a0", "", "a0", owned, "", "")
    with pytest.raises(Refused) as caught:
        run(case)
    assert caught.value.code == ErrorCode.FENCED_MEMBER_EPOCH


def test_who_just_came_and_reads_nothing_has_nothing_to_give_up() -> None:
    """At epoch 0, which only a group has that was classic and never had a generation."""
    context = Context(GroupCoordinator((), now_ms=0, log=CountingLog()), 0)
    member = ConsumerMember("m")
    group = ConsumerGroup("g", assignment_epoch=0)
    records: list[CoordinatorRecord] = []
    assert reconcile(context, group, member, Target(0, {}), (), records, subscription_changed=True) is member
    assert records == []
