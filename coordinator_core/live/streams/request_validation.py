"""Checks of a heartbeat before it reaches a coordinator partition (GroupCoordinatorService).

Problems are checked in Kafka's order; the first one is reported.
"""

from collections.abc import Iterator

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion, Since
from coordinator_core.live.coordinator.modern_messages import Problem, empty_ids, first_text
from coordinator_core.live.streams.messages import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from coordinator_core.replay.member_epochs import JOIN_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH
from schemas.error_codes import ErrorCode


def refused_heartbeat(
    request: StreamsGroupHeartbeatRequest, version: KafkaVersion = DEFAULT_VERSION
) -> StreamsGroupHeartbeatResponse | None:
    is_joining = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
    code, text = ErrorCode.INVALID_REQUEST, None
    for problems in (_unsupported(request, version), _of_ids(request), _of_joining(request) if is_joining else ()):
        text = text or first_text(problems)
    if text is None and is_joining:
        code, text = ErrorCode.STREAMS_INVALID_TOPOLOGY, _invalid_topology(request)
    if text is None:
        code, text = ErrorCode.INVALID_REQUEST, first_text(_of_rest(request))
    return None if text is None else StreamsGroupHeartbeatResponse(error_code=code, error_message=text)


def _unsupported(request: StreamsGroupHeartbeatRequest, version: KafkaVersion) -> Iterator[Problem]:
    subtopologies = () if request.topology is None else request.topology.subtopologies
    if not Since.STREAMS_HAVE_STATIC_MEMBERS.holds_in(version):
        yield request.instance_id is not None, "Static membership is not yet supported."
    if not Since.STREAMS_TASK_OFFSETS.holds_in(version):
        yield request.task_offsets is not None, "TaskOffsets are not supported yet."
        yield request.task_end_offsets is not None, "TaskEndOffsets are not supported yet."
        yield bool(request.warmup_tasks), "WarmupTasks are not supported yet."
    yield (
        any(subtopology.source_topic_regex for subtopology in subtopologies),
        "Regular expressions for source topics are not supported yet.",
    )


def _of_ids(request: StreamsGroupHeartbeatRequest) -> Iterator[Problem]:
    return empty_ids(
        MemberId=request.member_id,
        GroupId=request.group_id,
        InstanceId=request.instance_id,
        RackId=request.rack_id,
    )


def _of_joining(request: StreamsGroupHeartbeatRequest) -> Iterator[Problem]:
    yield request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request."
    for name, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        yield tasks != (), f"{name} must be empty when (re-)joining."
    yield request.topology is None, "Topology must be non-null when (re-)joining."


def _invalid_topology(request: StreamsGroupHeartbeatRequest) -> str | None:
    """Check changelog topics: their partition counts follow from the tasks, so a request must not specify them."""
    for subtopology in () if request.topology is None else request.topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions != 0:
                return (
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}."
                )
    return None


def _of_rest(request: StreamsGroupHeartbeatRequest) -> Iterator[Problem]:
    epoch = request.member_epoch
    kinds = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    yield epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None, "InstanceId can't be null."
    yield (
        epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH,
        f"MemberEpoch is {epoch}, but must be greater than or equal to -2.",
    )
    yield 0 < kinds.count(None) < len(kinds), "If one task-type is non-null, all must be non-null."
    yield (
        epoch != JOIN_GROUP_MEMBER_EPOCH and request.topology is not None,
        "Topology can only be provided when (re-)joining.",
    )
