"""The state of a group's share partitions, as the group coordinator has it: initializing, initialized, deleting.

The share coordinator has the state of a share partition. The group coordinator keeps track of which partitions have
such a state, in records of type 15, which are always complete. Topic by topic, partitions change like this:

    (none)        -> initializing   a heartbeat finds a subscribed topic; AlterShareGroupOffsets
    initializing  -> initialized    the share coordinator has initialized them
    initializing  -> (none)         it failed to; the next heartbeat retries, as it does after the retry interval
    initialized   -> deleting       DeleteShareGroupOffsets, DeleteGroups (that one for initializing partitions too)
    deleting      -> (none)         the share coordinator has deleted them; for a deleted group, with the group
    deleting      -> initializing   a heartbeat or AlterShareGroupOffsets needs the topic again
    any           -> (none)         the topic was deleted from the cluster

AlterShareGroupOffsets initializes initialized partitions again: they are in both lists meanwhile. Source:
GroupMetadataManager.
"""

from collections.abc import Iterable

from coordinator_core.bytes.kafka_versions import Since
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import Topic
from coordinator_core.live.coordinator.operation import NOTHING, Context, Result
from coordinator_core.live.coordinator.records import CoordinatorRecord
from coordinator_core.live.offsets.messages import DeletedTopic
from coordinator_core.live.share.java_maps import (
    NamedPartitions,
    combined,
    named_partitions_of_record,
    subscribed_names,
    without,
)
from coordinator_core.live.share.live import ShareLive, are_same
from coordinator_core.live.share.messages import (
    UNINITIALIZED_START_OFFSET,
    DeleteShareState,
    InitializeShareState,
    ShareStatePartitions,
)
from coordinator_core.live.share.records import state_partitions_record
from coordinator_core.replay.java.ordered import computed, copy_of, map_of, partitions_of_record
from coordinator_core.replay.share.state import ShareGroup, ShareGroupStatePartitions, ShareMember
from schemas.error_codes import ErrorCode

UNKNOWN_TOPIC_NAME = "<UNKNOWN>"
"""In place of the name of a topic that no longer exists."""


# --- initialisation ---


def initialize_subscribed(
    context: Context,
    group: ShareGroup,
    group_epoch: int,
    recounted: ShareMember | None,
    records: list[CoordinatorRecord],
) -> InitializeShareState | None:
    """The partitions that the share coordinator should initialize after a heartbeat; their record is appended.

    None if all partitions of the subscribed topics are initialized, or have been initializing for less than
    `group.share.initialize.retry.interval.ms`. `recounted`: the updated member, where its heartbeat counted all
    subscriptions again; otherwise those of the group are valid.
    """
    live, group_id = context.live(ShareLive), group.group_id
    raw = context.shard.groups.share_partitions.get(group_id)
    derived = live.of(group_id)
    if recounted is None and are_same(derived.settled_with, raw, context.image, group.name_counts):
        return None
    state_partitions = state_partitions_of(context, group_id)
    known: NamedPartitions = {}
    if state_partitions is not None and raw is not None:
        age_ms = context.now_ms - live.state_partitions_ms(group_id, raw)
        is_fresh = age_ms < context.config.group_share_initialize_retry_interval_ms
        known = combined(state_partitions.initialized, state_partitions.initializing if is_fresh else {})
    before = () if recounted is None else group.members[recounted.member_id].subscribed_topic_names
    after = None if recounted is None else recounted.subscribed_topic_names
    wanted = _missing(context, subscribed_names(group.name_counts, before, after), known)
    if not wanted:
        if recounted is None and (raw is None or not raw.initializing):
            derived.settled_with = (raw, context.image, group.name_counts)
        return None
    add_initializing(context, group_id, wanted, records)
    known_topics = {} if state_partitions is None else {**state_partitions.initialized, **state_partitions.initializing}
    return InitializeShareState(
        {topic_id: numbers for topic_id, (_, numbers) in wanted.items()},
        group_epoch,
        {topic_id: _start_offset(context, is_known=topic_id in known_topics) for topic_id in wanted},
    )


def _start_offset(context: Context, *, is_known: bool) -> int:
    """Where new partitions of a topic start: at their first record, if the group already shares the topic."""
    is_first_record = is_known and Since.KNOWN_TOPICS_INITIALIZE_AT_0.holds_in(context.config.kafka_version)
    return 0 if is_first_record else UNINITIALIZED_START_OFFSET


def _missing(context: Context, names: Iterable[str], known: NamedPartitions) -> NamedPartitions:
    """Partitions of the topics that are not known yet (subscribedTopicsChangeMap).

    A topic is skipped if as many partitions are known as it has; only the number matters, not which ones.
    """
    missing = []
    for name in names:
        topic = context.image.topics.get(name)
        if topic is None:
            continue
        known_numbers = set(known.get(topic.topic_id, ("", ()))[1])
        if not known_numbers or len(known_numbers) < topic.partition_count:
            numbers = tuple(number for number in range(topic.partition_count) if number not in known_numbers)
            missing.append((topic.topic_id, (name, numbers)))
    return computed(missing)


def add_initializing(
    context: Context, group_id: str, wanted: NamedPartitions, records: list[CoordinatorRecord]
) -> None:
    """Append the record that these partitions are initializing; their topics are no longer deleting."""
    if not wanted:
        return
    state_partitions = state_partitions_of(context, group_id)
    if state_partitions is None:
        records.append(written(context, group_id, ShareGroupStatePartitions(initializing=wanted)))
        return
    initializing = combined(state_partitions.initializing, wanted)
    deleting = [topic_id for topic_id in state_partitions.deleting if topic_id not in initializing]
    next_picture = ShareGroupStatePartitions(initializing, state_partitions.initialized, named(context, deleting))
    records.append(written(context, group_id, next_picture))


def initialize_share_group_state(context: Context, request: ShareStatePartitions) -> Result:
    """The share coordinator has initialized these partitions: no response.

    Raises Refused, UNKNOWN_SERVER_ERROR, if the group no longer exists.
    """
    if not request.partitions:
        return NOTHING
    if not isinstance(context.group(request.group_id), ShareGroup):
        # Kafka reads the group without checking that it exists; its NullPointerException leads to the same error.
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    ready = partitions_of_record(request.partitions)
    names = named(context, ready)
    initialized: NamedPartitions = map_of({topic_id: (names[topic_id], ready[topic_id]) for topic_id in ready})
    state_partitions = state_partitions_of(context, request.group_id)
    if state_partitions is None:
        next_picture = ShareGroupStatePartitions(initialized=initialized)
    else:
        next_picture = ShareGroupStatePartitions(
            without(state_partitions.initializing, ready),
            combined(state_partitions.initialized, initialized),
            named(context, state_partitions.deleting),
        )
    return Result((written(context, request.group_id, next_picture),))


def uninitialize_share_group_state(context: Context, request: ShareStatePartitions) -> Result:
    """The share coordinator could not initialize these partitions: no response."""
    state_partitions = state_partitions_of(context, request.group_id)
    if state_partitions is None or not state_partitions.initializing or not request.partitions:
        return NOTHING
    initializing = without(state_partitions.initializing, request.partitions)
    next_picture = ShareGroupStatePartitions(
        initializing, state_partitions.initialized, named(context, state_partitions.deleting)
    )
    return Result((written(context, request.group_id, next_picture),))


def initialized_share_group_partitions(context: Context, group_id: str) -> Result:
    """The initialized partitions: topic id -> partitions. An unknown group has none."""
    state_partitions = state_partitions_of(context, group_id)
    initialized = {} if state_partitions is None else state_partitions.initialized
    return Result(response={topic_id: numbers for topic_id, (_, numbers) in initialized.items()})


# --- deletion ---


def share_partition_delete_requests(context: Context, group_ids: tuple[str, ...]) -> Result:
    """What the share coordinator should delete before DeleteGroups: a tuple of DeleteShareState.

    Ids that are not of a share group, and groups without partitions with a state, are left out.
    """
    records: list[CoordinatorRecord] = []
    answers = []
    for group_id in group_ids:
        group = context.group(group_id)
        if not isinstance(group, ShareGroup):
            continue
        if group.members:
            answers.append(DeleteShareState(group_id, error_code=ErrorCode.NON_EMPTY_GROUP))
            continue
        state_partitions = state_partitions_of(context, group_id)
        if state_partitions is None:
            continue
        doomed = _doomed(context, state_partitions)
        deleting = map_of({topic_id: name for topic_id, (name, _) in doomed.items()})
        records.append(written(context, group_id, ShareGroupStatePartitions(deleting=deleting)))
        if doomed:
            answers.append(DeleteShareState(group_id, {topic_id: numbers for topic_id, (_, numbers) in doomed.items()}))
    return Result(tuple(records), tuple(answers))


def _doomed(context: Context, state_partitions: ShareGroupStatePartitions) -> NamedPartitions:
    """Everything that is initialized or initializing; a topic that is already deleting is retried completely."""
    doomed = combined(state_partitions.initialized, state_partitions.initializing)
    again: NamedPartitions = map_of(
        {
            topic_id: (topic.name, tuple(range(topic.partition_count)))
            for topic_id in state_partitions.deleting
            if (topic := context.image.topic_of_id(topic_id)) is not None
        }
    )
    return combined(doomed, again) if again else doomed


def maybe_cleanup_share_group_state(context: Context, topics: tuple[DeletedTopic, ...]) -> Result:
    """Topics were deleted from the cluster: remove their partitions from all groups. No response."""
    gone = {topic.topic_id: () for topic in topics}
    records = []
    for group_id in sorted(context.shard.groups.share_partitions):
        state_partitions = state_partitions_of(context, group_id)
        if state_partitions is None or gone.keys().isdisjoint(
            [*state_partitions.initializing, *state_partitions.initialized, *state_partitions.deleting]
        ):
            continue
        deleting = [topic_id for topic_id in state_partitions.deleting if topic_id not in gone]
        next_picture = ShareGroupStatePartitions(
            _without_topics(state_partitions.initializing, gone),
            _without_topics(state_partitions.initialized, gone),
            named(context, deleting),
        )
        records.append(written(context, group_id, next_picture))
    return Result(tuple(records))


def _without_topics(topics: NamedPartitions, gone: Iterable[str]) -> NamedPartitions:
    copied = copy_of(topics)
    for topic_id in gone:
        copied.pop(topic_id, None)
    return copied


# --- the state of share partitions ---


def state_partitions_of(context: Context, group_id: str) -> ShareGroupStatePartitions | None:
    """The state of a group's share partitions with its maps in Java's order, or None."""
    state_partitions = context.shard.groups.share_partitions.get(group_id)
    if state_partitions is None:
        return None
    return ShareGroupStatePartitions(
        named_partitions_of_record(state_partitions.initializing),
        named_partitions_of_record(state_partitions.initialized),
        map_of(state_partitions.deleting),
    )


def named(context: Context, topic_ids: Iterable[str]) -> dict[str, str]:
    """Topic id -> current name in the cluster (attachTopicName)."""
    return map_of({topic_id: _name_of(context.image.topic_of_id(topic_id)) for topic_id in topic_ids})


def _name_of(topic: Topic | None) -> str:
    return UNKNOWN_TOPIC_NAME if topic is None else topic.name


def written(context: Context, group_id: str, state_partitions: ShareGroupStatePartitions) -> CoordinatorRecord:
    """The record of a new state; initializations count again from its replay on."""
    context.live(ShareLive).note_state_partitions(context, group_id)
    return state_partitions_record(group_id, state_partitions)
