"""GroupHistory: intervals and events of replayed operations."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.bytes import codec
from coordinator_core.bytes.client_protocols import Assignment, Subscription, encode_assignment, encode_subscription
from coordinator_core.bytes.log.copies import Load
from coordinator_core.history import groups, views
from coordinator_core.history.groups import GroupHistory, LostOffsets
from coordinator_core.history.operations import GroupRecord, OffsetsDeleted, Operation, ReplayedOperation
from coordinator_core.history.rows import GroupRows, key_columns
from coordinator_core.inference.groups.rebalances import is_unwritten
from coordinator_core.replay.dispatch import GroupShard
from schemas.consumer_offsets import RecordType
from schemas.registry import REGISTRY
from tests.examples import examples

TOPIC = "__consumer_offsets"
T1, T2 = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


def record(offset: int, record_type: RecordType, key: dict[str, Any], value: dict[str, Any] | None) -> GroupRecord:
    """A record as the log would hold it, defaults filled."""
    key_message, value_message = REGISTRY[TOPIC][record_type]
    return GroupRecord(
        offset, record_type, codec.make(key_message, **key), None if value is None else make_value(value_message, value)
    )


def element_of(message: Any, name: str) -> Any:
    """The declaration of the structs in an array field."""
    return next(field.kind.element for field in message.fields if field.name == name)


def make_value(declaration: Any, fields: dict[str, Any]) -> Any:
    """A struct from plain dictionaries and lists."""
    return codec.make(declaration, **fields)


def classic_value(generation: int, members: Mapping[str, Sequence[int]], **fields: Any) -> dict[str, Any]:
    """A GroupMetadataValue in which each member has partitions of topic t."""
    value_message = REGISTRY[TOPIC][RecordType.GROUP_METADATA][1]
    member_struct = element_of(value_message, "members")
    made = tuple(
        codec.make(
            member_struct,
            member_id=member_id,
            client_id="c",
            client_host="/h",
            rebalance_timeout=60_000,
            session_timeout=45_000,
            group_instance_id=fields.get("instances", {}).get(member_id),
            subscription=encode_subscription(Subscription(version=3, topics=("t",))),
            assignment=encode_assignment(Assignment(version=3, assigned_partitions=(("t", tuple(partitions)),))),
        )
        for member_id, partitions in members.items()
    )
    return {
        "protocol_type": "consumer",
        "generation": generation,
        "protocol": fields.get("protocol", "range") if members else None,
        "leader": fields.get("leader", next(iter(members), None)),
        "current_state_timestamp": 5,
        "members": made,
    }


def run(operations: Iterable[Sequence[GroupRecord]], group_id: str = "g") -> tuple[GroupHistory, GroupRows]:
    """Apply operations a second apart and finish."""
    history = GroupHistory()
    for index, records in enumerate(operations):
        history.apply(Operation(group_id, 1000 * (index + 1), records[-1].offset, records))
    rows = history.finish()
    return history, rows


def classic(offset: int, value: dict[str, Any] | None) -> GroupRecord:
    return record(offset, RecordType.GROUP_METADATA, {"group": "g"}, value)


def kinds(rows: GroupRows) -> list[str]:
    return [event.event_type for event in rows.events]


def test_classic_generations_follow_each_other() -> None:
    """Each generation is a row; the closed one ends where the next begins, and a skipped number is said."""
    _, rows = run(
        [
            [classic(0, classic_value(0, {}))],
            [classic(1, classic_value(1, {"a": [0, 1]}))],
            [classic(2, classic_value(3, {"a": [0], "b": [1]}))],
        ]
    )
    got = [
        (r.generation, r.from_log_offset, r.to_log_offset, r.valid_to, r.state, r.previous_generation, r.is_contiguous)
        for r in rows.generations
    ]
    assert got == [
        (0, 0, 1, 2000, "Empty", None, True),
        (1, 1, 2, 3000, "Stable", 0, True),
        (3, 2, None, None, "Stable", 1, False),
    ]


def test_assignment_interval_goes_on_over_generations() -> None:
    """A partition that a member keeps is one interval; one that moves ends and begins."""
    _, rows = run([[classic(1, classic_value(1, {"a": [0, 1]}))], [classic(2, classic_value(2, {"a": [0], "b": [1]}))]])
    got = sorted(
        (r.member_id, r.topic, r.partition, r.from_log_offset, r.to_log_offset, r.from_generation, r.to_generation)
        for r in rows.assignments
    )
    assert got == [("a", "t", 0, 1, None, 1, 2), ("a", "t", 1, 1, 2, 1, 1), ("b", "t", 1, 2, None, 2, 2)]


def test_member_left_and_group_emptied_and_deleted() -> None:
    """A member that is no longer named has left; the tombstone ends the group."""
    _, rows = run([[classic(1, classic_value(1, {"a": [0]}))], [classic(2, classic_value(2, {}))], [classic(3, None)]])
    assert kinds(rows) == [
        "GROUP_CREATED",
        "GENERATION_STARTED",
        "MEMBER_JOINED",
        "GENERATION_STARTED",
        "MEMBER_LEFT",
        "GROUP_EMPTIED",
        "GROUP_DELETED",
    ]
    (member,) = rows.members
    assert (member.ended_by, member.to_log_offset, member.subscribed_topics) == ("LEFT_OR_EXPIRED", 2, ("t",))
    assert [r.to_log_offset for r in rows.generations] == [2, 3]


def test_static_member_is_replaced_within_a_generation() -> None:
    """The same generation written again under another member id and one instance id is a replacement."""
    _, rows = run(
        [
            [classic(1, classic_value(1, {"a": [0]}, instances={"a": "i"}))],
            [classic(2, classic_value(1, {"b": [0]}, instances={"b": "i"}))],
        ]
    )
    assert kinds(rows)[3:] == ["LEADER_CHANGED", "STATIC_MEMBER_REPLACED"]
    assert [(m.member_id, m.ended_by) for m in rows.members] == [("a", "REPLACED_STATIC"), ("b", None)]
    assert len(rows.generations) == 1


def test_incarnation_grows_when_a_group_is_rebuilt() -> None:
    """Deleted and made again: the second life is incarnation 1 and has no previous generation."""
    _, rows = run([[classic(1, classic_value(1, {"a": [0]}))], [classic(2, None)], [classic(3, classic_value(0, {}))]])
    assert [(r.incarnation, r.generation, r.previous_generation) for r in rows.generations] == [
        (0, 1, None),
        (1, 0, None),
    ]


def test_generation_that_falls_is_an_anomaly() -> None:
    """Without a tombstone a smaller generation can only be another group: said, and counted as one."""
    _, rows = run([[classic(1, classic_value(7, {"a": [0]}))], [classic(2, classic_value(2, {"a": [0]}))]])
    anomaly = next(e for e in rows.events if e.event_type == "ANOMALY")
    assert anomaly.details["code"] == "GENERATION_FELL"
    assert [(r.incarnation, r.generation, r.is_contiguous) for r in rows.generations] == [(0, 7, False), (1, 2, False)]


def test_generations_wrap_as_java_ints_do() -> None:
    """-2^31 follows 2^31 - 1 in the same group: no rule is broken."""
    top = 2**31 - 1
    steps = [(top - 1, {"a": [0]}), (top, {"a": [0]}), (-top - 1, {"a": [0]}), (3 - top, {"a": [0], "b": [1]})]
    _, rows = run([[classic(place, classic_value(*step))] for place, step in enumerate(steps, 1)])
    assert not [event for event in rows.events if event.event_type == "ANOMALY"]
    assert [(r.incarnation, r.previous_generation, r.generation, r.is_contiguous) for r in rows.generations] == [
        (0, None, top - 1, False),
        (0, top - 1, top, True),
        (0, top, -top - 1, True),
        (0, -top - 1, 3 - top, False),
    ]
    assert {(r.member_id, r.from_generation, r.to_generation) for r in rows.members if r.member_id == "a"} == {
        ("a", top - 1, 3 - top)
    }


@pytest.mark.parametrize(
    ("generations", "is_contiguous"), [((2,), True), ((2, 3), True), ((3,), False), ((2, 4), False)]
)
def test_generations_of_one_operation_follow_one_another(generations: Sequence[int], is_contiguous: bool) -> None:
    """Two of one batch count together, and none is missing before them: each follows the one before in the log."""
    later = [classic(place, classic_value(it, {"a": [0]})) for place, it in enumerate(generations, 2)]
    _, rows = run([[classic(1, classic_value(1, {"a": [0]}))], later])
    last = rows.generations[-1]
    assert (last.previous_generation, last.generation, last.is_contiguous) == (1, generations[-1], is_contiguous)


def test_offsets_alone_make_a_simple_group() -> None:
    """The first commit for an unknown group makes a classic group without members (ClassicGroup.isSimpleGroup)."""
    _, rows = run([[GroupRecord(4, RecordType.OFFSET_COMMIT, None, None)]])
    assert [(r.group_type, r.generation, r.state, r.member_count) for r in rows.generations] == [
        ("CLASSIC", 0, "Empty", 0)
    ]
    assert kinds(rows) == ["GROUP_CREATED", "GENERATION_STARTED"]


def test_a_group_stays_serialized_when_its_offsets_are_deleted() -> None:
    """What was saved of it is saved again; the events tell its type and generation, if there is such a group."""
    saved = run([[classic(0, classic_value(7, {"m": [0]}))]])[0].save()
    history = GroupHistory(saved=saved)
    for group_id, offset in (("g", 1), ("g", 3), ("other", 5)):
        history.apply(OffsetsDeleted(group_id, 10 * offset, [offset, offset + 1], ["t", "u"], [0, 1]))
    assert (history.serialized, history.save()) == ({"g"}, saved)
    events = [(row.log_offset, row.at, row.group_type, row.generation, row.topic) for row in history.take().events]
    assert events == [
        (1, 10, "CLASSIC", 7, "t"),
        (2, 10, "CLASSIC", 7, "u"),
        (3, 30, "CLASSIC", 7, "t"),
        (4, 30, "CLASSIC", 7, "u"),
        (5, 50, None, None, "t"),
        (6, 50, None, None, "u"),
    ]
    history.apply(Operation("g", 80, 8, [classic(8, classic_value(8, {"m": [0]}))]))
    history.apply(OffsetsDeleted("g", 90, [9], ["t"], [0]))
    assert not history.serialized
    assert history.take().events[-1].generation == 8


def consumer_join(offset: int, member_id: str, epoch: int, partitions: Sequence[int]) -> list[GroupRecord]:
    """Records of a first heartbeat: 5, 3, 7, 6, 8."""
    member = {"group_id": "g", "member_id": member_id}
    assigned = REGISTRY[TOPIC][RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT][1]
    target = REGISTRY[TOPIC][RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER][1]
    return [
        record(
            offset,
            RecordType.CONSUMER_GROUP_MEMBER_METADATA,
            member,
            {"client_id": "c", "client_host": "/h", "subscribed_topic_names": ("t",), "classic_member_metadata": None},
        ),
        record(offset + 1, RecordType.CONSUMER_GROUP_METADATA, {"group_id": "g"}, {"epoch": epoch}),
        record(
            offset + 2,
            RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
            member,
            {
                "topic_partitions": (
                    codec.make(element_of(target, "topic_partitions"), topic_id=T1, partitions=tuple(partitions)),
                )
            },
        ),
        record(
            offset + 3,
            RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
            {"group_id": "g"},
            {"assignment_epoch": epoch},
        ),
        record(
            offset + 4,
            RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
            member,
            {
                "member_epoch": epoch,
                "assigned_partitions": (
                    codec.make(element_of(assigned, "assigned_partitions"), topic_id=T1, partitions=tuple(partitions)),
                ),
            },
        ),
    ]


def test_an_operation_is_one_step() -> None:
    """Five records of one heartbeat: one generation and member, each partition as target and owned, from the last."""
    _, rows = run([consumer_join(10, "m", 2, [0])])
    assert [(r.generation, r.from_log_offset, r.assignment_epoch, r.state) for r in rows.generations] == [
        (2, 14, 2, "Stable")
    ]
    assert sorted((r.assignment, r.topic_id, r.partition, r.from_log_offset) for r in rows.assignments) == [
        ("CURRENT", T1, 0, 14),
        ("TARGET", T1, 0, 14),
    ]
    assert [(e.event_type, e.log_offset, e.event_index) for e in rows.events] == [
        ("GROUP_CREATED", 10, 0),
        ("MEMBER_JOINED", 10, 1),
        ("GENERATION_STARTED", 11, 0),
        ("TARGET_COMPUTED", 13, 0),
        ("MEMBER_RECONCILED", 14, 0),
    ]


def test_topic_name_is_learned_from_a_single_subscription() -> None:
    """A member that subscribes to one topic can only be given that one, in a target computed just now."""
    _, rows = run([consumer_join(10, "m", 2, [0])])
    assert [(t.topic_id, t.topic, t.learned_from) for t in rows.topics] == [(T1, "t", "SUBSCRIPTION")]


@pytest.mark.parametrize("with_members", [True, False], ids=["online", "empty"])
def test_conversion_of_a_classic_group(with_members: bool) -> None:
    """With members the group goes on (same incarnation, rows end CONVERTED); an empty one is created again."""
    before = classic_value(3, {"m": [0]} if with_members else {})
    convert = [classic(20, None), *consumer_join(21, "m", 4, [0])]
    _, rows = run([[classic(1, before)], convert])
    first, second = rows.generations
    assert (first.group_type, second.group_type) == ("CLASSIC", "CONSUMER")
    assert second.incarnation == (0 if with_members else 1)
    assert second.previous_generation == (3 if with_members else None)
    assert "GROUP_CONVERTED" in kinds(rows)
    assert "GROUP_DELETED" not in kinds(rows)
    if with_members:
        assert [m.ended_by for m in rows.members] == ["CONVERTED", None]
        assert kinds(rows).count("MEMBER_JOINED") == 1


def test_static_member_away_stays_open() -> None:
    """Member epoch -2 is an event; the row stays open, as the broker lists the member."""
    away = record(
        30,
        RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        {"group_id": "g", "member_id": "m"},
        {"member_epoch": -2},
    )
    _, rows = run([consumer_join(10, "m", 2, [0]), [away]])
    assert [m.to_log_offset for m in rows.members] == [None]
    assert [e.log_offset for e in rows.events if e.event_type == "STATIC_MEMBER_LEFT"] == [30]


MEMBERS = st.sampled_from(["m1", "m2", "m3"])


@st.composite
def operations(draw: st.DrawFn) -> list[list[GroupRecord]]:
    """Any sequence of operations of any group type on one group id."""
    offset = 0
    made: list[list[GroupRecord]] = []
    for _ in range(draw(st.integers(1, 8))):
        records: list[GroupRecord] = []
        for _ in range(draw(st.integers(1, 5))):
            records.append(draw(any_record(offset)))
            offset += 1
        made.append(records)
    return made


@st.composite
def any_record(draw: st.DrawFn, offset: int) -> GroupRecord:
    """One record of any kind for group g, values of small ranges."""
    kind = draw(st.sampled_from(["classic", "join", "epoch", "tombstone", "touch"]))
    if kind == "touch":
        return GroupRecord(offset, RecordType.OFFSET_COMMIT, None, None)
    if kind == "classic":
        members = draw(st.dictionaries(MEMBERS, st.lists(st.integers(0, 3), unique=True, max_size=3), max_size=3))
        value = classic_value(draw(st.integers(0, 9)), members) if draw(st.booleans()) else None
        return classic(offset, value)
    parts = consumer_join(
        offset, draw(MEMBERS), draw(st.integers(1, 9)), draw(st.lists(st.integers(0, 3), unique=True))
    )
    part = draw(st.sampled_from(parts))
    return GroupRecord(offset, part.record_type, part.key, None if kind == "tombstone" else part.value)


@examples(2)
@given(operations())
def test_open_rows_are_the_state(sequence: list[list[GroupRecord]]) -> None:
    """Whatever the log holds: the open rows equal the replayed state, keys are unique, and intervals do not overlap."""
    history, rows = run(sequence)
    group = history.shard.groups.get("g")
    open_members = {m.member_id for m in rows.members if m.to_log_offset is None}
    assert open_members == (set(group.members) if group is not None else set())
    open_generations = [(g.group_type, g.generation) for g in rows.generations if g.to_log_offset is None]
    assert open_generations == ([(views.group_type(group), views.generation(group))] if group is not None else [])
    for member in {a.member_id for a in rows.assignments} | open_members:
        open_keys = {
            (a.assignment, (a.task_type, a.topic_id, a.topic), a.partition)
            for a in rows.assignments
            if a.to_log_offset is None and a.member_id == member
        }
        if group is None:
            assert not open_keys
            continue
        sources = views.sources_of(group)(group, member)
        assert open_keys == {
            (kind, key_columns(views.group_type(group), key), partition)
            for kind, source in zip(views.ASSIGNMENT_KINDS, sources, strict=True)
            for key, partitions in views.assigned(source).items()
            for partition in partitions
        }
    generation_keys = [(g.group_type, g.incarnation, g.generation) for g in rows.generations]
    assert len(set(generation_keys)) == len(generation_keys)
    event_keys = [(e.log_offset, e.event_index) for e in rows.events]
    assert len(set(event_keys)) == len(event_keys)
    member_keys = [(m.group_type, m.member_id, m.from_log_offset) for m in rows.members]
    assert len(set(member_keys)) == len(member_keys)
    spans = sorted((g.from_log_offset, g.to_log_offset or 10**9) for g in rows.generations)
    for (_, end), (start, _) in pairwise(spans):
        assert end <= start
    for row in (*rows.generations, *rows.members, *rows.assignments):
        assert row.to_log_offset is None or row.from_log_offset < row.to_log_offset


@pytest.mark.parametrize(
    "source",
    [{"t": (1, 3)}, {"t": (1, 3), "u": ()}, {"u": (), "t": (1, 3)}, {"t": {1: 5, 3: 4}}, {"t": {3: 5, 1: 4}, "u": {}}],
)
def test_topics_of_no_partitions_are_nothing_that_a_member_has(source: Mapping[str, Collection[int]]) -> None:
    """Be it a target, or with epochs."""
    assert views.assigned(source) == {"t": (1, 3)}


LOAD = Load(log_offset=100, leader_epoch=3, log_start_offset=90, is_ordered=True)


def reloaded(before: Sequence[GroupRecord], loaded: Sequence[GroupRecord], offset_count: int = 0) -> GroupRows:
    """All rows where a leader, whose epoch begins at offset 100, loads some of a group's records."""
    history, loading = GroupHistory(), GroupHistory()
    for each in before:
        history.apply(Operation("g", 1_000 * each.offset, each.offset, [each]))
    for each in loaded:
        loading.apply(Operation("g", 1_000 * each.offset, each.offset, [each]))
    lost = {"g": LostOffsets(offset_count, 7)} if offset_count else {}
    history.reload(loading.shard, LOAD, 100, 100_000, lost)
    return history.finish()


def test_a_group_that_a_new_leader_did_not_load_ends() -> None:
    """Its generation, members and assignments end where the leader's epoch begins; one event says so, and nobody
    left."""
    rows = reloaded([classic(5, classic_value(4, {"m": [0]}))], [], offset_count=2)
    assert [(row.generation, row.to_log_offset, row.valid_to) for row in rows.generations] == [(4, 100, 100_000)]
    assert [(row.member_id, row.to_log_offset, row.ended_by) for row in rows.members] == [("m", 100, "FORGOTTEN")]
    assert [(row.partition, row.to_log_offset) for row in rows.assignments] == [(0, 100)]
    assert kinds(rows) == ["GROUP_CREATED", "GENERATION_STARTED", "MEMBER_JOINED", "FORGOTTEN"]
    event = rows.events[-1]
    assert (event.log_offset, event.at, event.generation) == (100, 100_000, 4)
    assert event.details == {
        "log_start_offset": "90",
        "leader_epoch": "3",
        "confidence": "LIKELY",
        "offset_count": "2",
        "member_count": "1",
        "group": "GONE",
    }


def test_a_group_that_a_new_leader_loaded_goes_on() -> None:
    """What has a newer record above the log start is known: no interval ends, and nothing is said."""
    newest = classic(95, classic_value(5, {"m": [0]}))
    rows = reloaded([classic(5, classic_value(4, {"m": [0]})), newest], [newest])
    assert [(row.generation, row.to_log_offset) for row in rows.generations] == [(4, 95), (5, None)]
    assert [(row.from_log_offset, row.to_log_offset) for row in rows.members] == [(5, None)]
    assert "FORGOTTEN" not in kinds(rows)


def test_a_group_that_fails_where_a_new_leader_begins_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """All others have the row that says what is forgotten."""

    def failing(operation: Operation, *args: Any) -> Any:
        if operation.group_id == "bad":
            raise TypeError("planted")
        return ReplayedOperation(operation, *args)

    monkeypatch.setattr(groups, "ReplayedOperation", failing)
    history = GroupHistory()
    history.reload(GroupShard(), LOAD, 100, 100_000, dict.fromkeys(("bad", "good"), LostOffsets(1, 7)))
    assert list(history.faults) == ["bad"]
    assert [event.group_id for event in history.finish().events] == ["good"]


def test_a_group_that_lost_only_offsets_goes_on() -> None:
    """The event counts them; no interval ends."""
    newest = classic(95, classic_value(5, {"m": [0]}))
    rows = reloaded([newest], [newest], offset_count=1)
    assert [(row.generation, row.to_log_offset) for row in rows.generations] == [(5, None)]
    assert (rows.events[-1].event_type, rows.events[-1].details["group"]) == ("FORGOTTEN", "KEPT")


def test_what_a_new_leader_loaded_of_a_group_begins_there() -> None:
    """Of a group whose members have records of their own, those stay that are above the log start: intervals of its own
    from the leader's epoch on, and nobody joined."""

    def member(offset: int, member_id: str) -> GroupRecord:
        key = {"group_id": "g", "member_id": member_id}
        fields = {"client_id": "c", "client_host": "/h", "subscribed_topic_names": ("t",)}
        return record(offset, RecordType.CONSUMER_GROUP_MEMBER_METADATA, key, fields)

    epoch = record(96, RecordType.CONSUMER_GROUP_METADATA, {"group_id": "g"}, {"epoch": 7})
    kept = member(95, "kept")
    rows = reloaded([member(5, "lost"), kept, epoch], [kept, epoch])
    ends = {(row.member_id, row.from_log_offset): (row.to_log_offset, row.ended_by) for row in rows.members}
    assert ends == {("lost", 5): (100, "FORGOTTEN"), ("kept", 95): (100, "FORGOTTEN"), ("kept", 100): (None, None)}
    newest = next(row for row in rows.generations if row.to_log_offset is None)
    assert (newest.incarnation, newest.generation, newest.member_count) == (1, 7, 1)
    assert is_unwritten(newest), "nothing was rebalanced"
    assert [event.member_id for event in rows.events if event.event_type == "MEMBER_JOINED"] == ["lost", "kept"]
    assert (rows.events[-1].details["group"], rows.events[-1].details["member_count"]) == ("IN_PART", "1")
