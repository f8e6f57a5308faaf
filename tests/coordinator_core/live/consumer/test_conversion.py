"""Tests of the conversion between classic and consumer groups, by named cases."""

from collections.abc import Mapping
from typing import Any

import pytest
from immutables import Map
from msgspec.structs import replace

from coordinator_core.bytes.client_protocols import (
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from coordinator_core.live.classic.live import STABLE, LiveClassicGroup, LiveMember
from coordinator_core.live.consumer.conversion import (
    check_upgrade,
    consumer_group_of,
    downgrade,
    put_back,
    upgrade,
)
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.coordinator.metadata_hash import metadata_hash
from coordinator_core.live.coordinator.operation import Context
from coordinator_core.live.coordinator.records import CoordinatorRecord
from coordinator_core.replay.consumer.state import ClassicMemberMetadata, ConsumerGroup, ConsumerMember, MemberState
from schemas.error_codes import ErrorCode
from tests.coordinator_core.live.coordinator.clients import REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, Clients

FOO, BAR = "Zm9vZm9vZm9vZm9vZm9vZg", "YmFyYmFyYmFyYmFyYmFyYg"
IMAGE = image_of([Topic("foo", FOO, 4), Topic("bar", BAR, 2)])
GENERATION_ID = 7


def subscription(*topics: str, version: int = 3, rack_id: str | None = None) -> bytes:
    return encode_subscription(Subscription(version, topics, rack_id=rack_id))


def assignment(user_data: bytes | None = None, **partitions: tuple[int, ...]) -> bytes:
    return encode_assignment(Assignment(3, tuple(partitions.items()), user_data))


def live_member(member_id: str, assigned: bytes = b"", *, metadata: bytes = b"", **fields: Any) -> LiveMember:
    protocols = (("range", metadata or subscription("foo", "bar")), ("sticky", b"another"))
    return LiveMember(
        member_id,
        fields.pop("instance", None),
        "client",
        "/host",
        REBALANCE_TIMEOUT_MS,
        SESSION_TIMEOUT_MS,
        "consumer",
        protocols,
        assigned,
        **fields,
    )


def live_group(*members: LiveMember, protocol_name: str | None = "range") -> LiveClassicGroup:
    group = LiveClassicGroup("g", state=STABLE, generation_id=GENERATION_ID, protocol_name=protocol_name)
    for member in members:
        group.add(member)
    return group


def clients_of(group: LiveClassicGroup | ConsumerGroup, **config: Any) -> Clients:
    """A coordinator which has this group and the topics foo and bar."""
    clients = Clients(**config)
    clients.coordinator.image = IMAGE
    if isinstance(group, LiveClassicGroup):
        clients.coordinator.classic_groups["g"] = group
    else:
        shard = clients.coordinator.shard
        clients.coordinator.shard = replace(shard, groups=replace(shard.groups, groups=Map({"g": group})))
    return clients


def context_of(clients: Clients) -> Context:
    return Context(clients.coordinator, clients.now_ms)


def kinds(records: list[CoordinatorRecord] | tuple[CoordinatorRecord, ...]) -> list[tuple[int, bool]]:
    """(type, whether it is a tombstone), runs of one kind once."""
    found: list[tuple[int, bool]] = []
    for record in records:
        kind = (int(record.record_type), record.value is None)
        if found[-1:] != [kind]:
            found.append(kind)
    return found


# --- what is allowed ---


@pytest.mark.parametrize(
    ("config", "protocol_type", "why"),
    [
        ({"group_consumer_migration_policy": "downgrade"}, "consumer", "online upgrade is disabled."),
        ({}, "connect", "the group does not use the consumer embedded protocol."),
        ({"group_consumer_max_size": 1}, "consumer", "the group size exceeds the consumer group maximum size."),
    ],
)
def test_a_group_which_has_to_stay_classic(config: dict[str, Any], protocol_type: str, why: str) -> None:
    """To a member of the consumer protocol there is no such group."""
    group = live_group(live_member("A"), live_member("B"))
    group.protocol_type = protocol_type
    with pytest.raises(Refused, match=why) as refused:
        check_upgrade(GroupCoordinatorConfig(**config), group)
    assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND


# --- classic to consumer ---


def test_members_keep_what_the_last_assignment_gave_them() -> None:
    """They are stable at the generation, which goes on as the epoch; what they hold is their target too."""
    group = live_group(
        live_member("A", assignment(foo=(0, 1), bar=(1,)), instance="i", metadata=subscription("foo", rack_id="r")),
        live_member("B", assignment(foo=(3, 2), gone=(0,))),
    )
    converted = consumer_group_of(group, IMAGE)
    assert (converted.group_epoch, converted.assignment_epoch, converted.assignment_timestamp_ms) == (7, 7, 0)
    assert converted.metadata_hash == metadata_hash(IMAGE, ["foo", "bar"])
    assert converted.static_members == Map({"i": "A"})
    assert converted.members["A"] == ConsumerMember(
        "A",
        member_epoch=7,
        previous_member_epoch=7,
        state=MemberState.STABLE,
        instance_id="i",
        rack_id="r",
        client_id="client",
        client_host="/host",
        subscribed_topic_names=("foo",),
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        classic_member_metadata=ClassicMemberMetadata(SESSION_TIMEOUT_MS, group.members["A"].protocols),
        assigned={FOO: {0: 7, 1: 7}, BAR: {1: 7}},
    )
    assert converted.members["B"].assigned == {FOO: {2: 7, 3: 7}}
    assert converted.target_assignment["B"] == {FOO: (2, 3)}
    assert converted.owners[FOO, 3] == "B"


def test_before_a_protocol_is_chosen_the_one_counts_which_would_be() -> None:
    """Kafka 4.3.1 fails here. The first rebalance is under way, so everybody rejoins in any case."""
    member = live_member("A", metadata=subscription("bar"))
    converted = consumer_group_of(live_group(member, protocol_name=None), IMAGE)
    assert converted.members["A"].subscribed_topic_names == ("bar",)


def test_what_members_said_under_the_chosen_protocol_counts() -> None:
    """Not what they prefer: only the chosen one is known after a load. Here its metadata is not a subscription."""
    with pytest.raises(Refused, match="malformed"):
        consumer_group_of(live_group(live_member("A"), protocol_name="sticky"), IMAGE)


CANNOT = "Cannot upgrade classic group g to consumer group because "


@pytest.mark.parametrize(
    ("member", "code", "text"),
    [
        (
            live_member("A", metadata=b"\x00"),
            ErrorCode.GROUP_ID_NOT_FOUND,
            CANNOT + "the embedded consumer protocol is malformed.",
        ),
        (
            live_member("A", b"\x00\x00\x01"),
            ErrorCode.GROUP_ID_NOT_FOUND,
            CANNOT + "the embedded consumer protocol is malformed.",
        ),
        (
            live_member("A", assignment(b"mine", foo=(0,)), metadata=b"\x00"),
            ErrorCode.GROUP_ID_NOT_FOUND,
            CANNOT + "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
            "default assignor before re-attempting the upgrade.",
        ),
        (
            live_member("A", assignment(foo=(2,))),
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Cannot set the epoch of {FOO}-2 to 7 because the partition is still owned at epoch 7",
        ),
    ],
    ids=["subscription", "assignment", "user data", "a partition given twice"],
)
def test_a_group_which_a_consumer_group_cannot_stand_for(member: LiveMember, code: ErrorCode, text: str) -> None:
    """The conversion is refused, the group stays classic; pending members are asked to rejoin nevertheless."""
    waiting = live_member("B", assignment(foo=(2,)), awaiting_join=11)
    group = live_group(waiting, member)
    clients = clients_of(group)
    context, records = context_of(clients), list[CoordinatorRecord]()
    with pytest.raises(Refused) as refused:
        upgrade(context, group, records)
    assert (refused.value.code, refused.value.message) == (code, text)
    assert records == [] or kinds(records) == [(2, True)]
    assert clients.group is group
    (done,) = context.outcome(None, None).completed
    assert (done.request_id, done.response.error_code) == (11, ErrorCode.REBALANCE_IN_PROGRESS)


# --- consumer to classic ---


def member(member_id: str, *, is_classic: bool = True, **fields: Any) -> ConsumerMember:
    metadata = ClassicMemberMetadata(SESSION_TIMEOUT_MS, (("range", subscription("foo")),)) if is_classic else None
    return ConsumerMember(
        member_id,
        member_epoch=9,
        previous_member_epoch=9,
        subscribed_topic_names=("foo",),
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        classic_member_metadata=fields.pop("metadata", metadata),
        **fields,
    )


def consumer_group(
    *members: ConsumerMember, targets: Mapping[str, Mapping[str, tuple[int, ...]]] | None = None
) -> ConsumerGroup:
    """A group at epoch 9, its members in the order in which they came."""
    return ConsumerGroup(
        "g",
        group_epoch=9,
        assignment_epoch=9,
        members=Map({one.member_id: replace(one, place=place) for place, one in enumerate(members)}),
        static_members=Map({one.instance_id: one.member_id for one in members if one.instance_id is not None}),
        target_assignment=Map(targets or {}),
        members_ever=len(members),
        table_capacity=16,
    )


CONSUMER = member("C", is_classic=False)


def test_a_log_which_refuses_leaves_the_consumer_group() -> None:
    """What was put in place before the records is taken back."""
    group = consumer_group(member("A"), CONSUMER)
    clients = clients_of(group)
    context = context_of(clients)
    result = downgrade(context, group, [CONSUMER], None)
    clients.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    context.apply(result)
    assert clients.coordinator.group("g") is group
    assert clients.coordinator.classic_groups == {}


def test_only_what_was_put_in_place_is_taken_back() -> None:
    """Another group may have the id by then."""
    group = consumer_group(member("A"), CONSUMER)
    clients = clients_of(group)
    context = context_of(clients)
    downgrade(context, group, [CONSUMER], None)
    clients.coordinator.classic_groups["g"] = another = live_group()
    put_back(context, clients_of(live_group()).group)
    assert clients.group is another


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        (b"\x00", "Buffer underflow while parsing consumer protocol's header"),
        (b"\xff\xff", "Unsupported assignment version: -1"),
    ],
)
def test_a_member_without_a_version_keeps_the_group_from_being_classic(metadata: bytes, text: str) -> None:
    """Its assignment could not be written."""
    broken = member("A", metadata=ClassicMemberMetadata(SESSION_TIMEOUT_MS, (("range", metadata),)))
    group = consumer_group(broken, CONSUMER)
    clients = clients_of(group)
    with pytest.raises(Refused) as refused:
        downgrade(context_of(clients), group, [CONSUMER], None)
    assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.value.message == f"Cannot downgrade the classic group g: {text}."
    assert clients.coordinator.group("g") is group
