"""Operations of share groups that involve both the group coordinator and the share coordinator.

How it works
------------
The group coordinator decides and tracks the share partitions, the share coordinators have the offsets; the broker that
receives the request alternates between them (GroupCoordinatorService). Each such operation is a generator, a *flow*,
that does no I/O of its own. It yields the next request, is sent the result, and returns the response:

* `Ask(operation, request)`: an operation of the group coordinator. Sent back: its `Outcome`.
* `Persist(operation, group_id, partitions)`: a request to the share coordinators through the broker's persister. Sent
  back: topic id -> `PartitionResult`s. If the persister fails as a whole, `Refused` is thrown into the flow.

`run` executes a flow where results are available immediately. `persist` passes a `Persist` to a
`share_state.persister.Persister`. Steps are independent: if the broker dies, the rest of a flow is not executed. A
later heartbeat then finds partitions that are still initializing, and retries after the retry interval.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from coordinator_core.live.coordinator.errors import DEFAULT_MESSAGE, Refused
from coordinator_core.live.coordinator.operation import Outcome
from coordinator_core.live.offsets.messages import DeletableGroupResult
from coordinator_core.live.share.messages import (
    AlteredOffsets,
    AlterOffsetsResponsePartition,
    AlterOffsetsResponseTopic,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    CompleteOffsetDeletion,
    DeleteOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareState,
    InitializeShareState,
    OffsetDeletion,
    ShareStatePartitions,
    TopicPartitionMap,
)
from coordinator_core.live.share_state.messages import (
    NO_CHECK,
    DeletePartition,
    InitializePartition,
    PartitionResult,
    ReadPartition,
)
from coordinator_core.live.share_state.persister import Persister
from coordinator_core.replay.lookup import SharePartitionKey
from schemas.error_codes import ErrorCode

R = TypeVar("R")

StateResults = Mapping[str, tuple[PartitionResult, ...]]
"""Topic id -> result for each partition."""


@dataclass(frozen=True, slots=True)
class Ask:
    operation: str
    request: Any


@dataclass(frozen=True, slots=True)
class Persist:
    """An operation of the share coordinators. `partitions`: topic id -> request for each partition."""

    operation: str
    group_id: str
    partitions: Mapping[str, tuple[InitializePartition | DeletePartition | ReadPartition, ...]]


Flow = Generator[Ask | Persist, Any, R]


# --- after a heartbeat ---


def initialize_after_heartbeat(group_id: str, wanted: InitializeShareState) -> Flow[ErrorCode]:
    """Initialize the partitions that a heartbeat found. The member already has its response: the error code is for the
    log.

    If one partition fails, all of it is taken back, so that a later heartbeat retries.
    """
    try:
        results: StateResults = yield Persist(
            "initialize_state",
            group_id,
            {
                topic_id: tuple(
                    InitializePartition(number, wanted.state_epoch, wanted.start_offsets[topic_id])
                    for number in numbers
                )
                for topic_id, numbers in wanted.partitions.items()
            },
        )
    except Refused as failure:
        yield Ask("uninitialize_share_group_state", ShareStatePartitions(group_id, wanted.partitions))
        return failure.code
    return (yield from _take_over(group_id, results))


def _take_over(group_id: str, results: StateResults) -> Flow[ErrorCode]:
    """Pass the share coordinators' results to the group coordinator (handlePersisterInitializeResponse)."""
    partitions = {topic_id: tuple(result.partition for result in of_topic) for topic_id, of_topic in results.items()}
    code = next(_errors_of(results), ErrorCode.NONE)
    if not partitions:
        return code
    if code == ErrorCode.NONE:
        outcome: Outcome = yield Ask("initialize_share_group_state", ShareStatePartitions(group_id, partitions))
        if outcome.error is None:
            return code
        code = outcome.error.code
    yield Ask("uninitialize_share_group_state", ShareStatePartitions(group_id, partitions))
    return code


def _errors_of(results: StateResults) -> Iterator[ErrorCode]:
    return (
        ErrorCode(result.error_code)
        for of_topic in results.values()
        for result in of_topic
        if result.error_code != ErrorCode.NONE
    )


# --- AlterShareGroupOffsets ---


def alter_offsets(request: AlterShareGroupOffsetsRequest) -> Flow[AlterShareGroupOffsetsResponse]:
    """AlterShareGroupOffsets: the partitions are initialized again, with their start offsets.

    If some fail, all of them stay initializing: the next heartbeat after the retry interval initializes them, from
    `share.auto.offset.reset`.
    """
    if not request.group_id:
        return _alter_error(ErrorCode.INVALID_GROUP_ID)
    outcome: Outcome = yield Ask("alter_share_group_offsets", request)
    if outcome.error is not None:
        return _alter_error(outcome.error.code, outcome.error.message)
    altered: AlteredOffsets = outcome.response
    if not altered.start_offsets:
        return altered.response
    try:
        results: StateResults = yield Persist(
            "initialize_state",
            request.group_id,
            {
                topic_id: tuple(
                    InitializePartition(number, altered.state_epoch, offset) for number, offset in offsets.items()
                )
                for topic_id, offsets in altered.start_offsets.items()
            },
        )
    except Refused as failure:
        return _all_failed(altered.response, failure)
    if any(True for _ in _errors_of(results)):
        return _some_failed(altered.response, results)
    yield from _take_over(request.group_id, results)
    return altered.response


def _alter_error(code: ErrorCode, message: str | None = None) -> AlterShareGroupOffsetsResponse:
    text = DEFAULT_MESSAGE.get(code) if message is None else message
    return AlterShareGroupOffsetsResponse(error_code=code, error_message=text)


def _all_failed(response: AlterShareGroupOffsetsResponse, failure: Refused) -> AlterShareGroupOffsetsResponse:
    message = DEFAULT_MESSAGE.get(failure.code, failure.message)

    def failed(_: str, partition: AlterOffsetsResponsePartition) -> AlterOffsetsResponsePartition:
        return AlterOffsetsResponsePartition(partition.partition_index, failure.code, message)

    topics = _with_partitions(response, failed)
    return AlterShareGroupOffsetsResponse(error_code=failure.code, error_message=failure.message, responses=topics)


def _some_failed(response: AlterShareGroupOffsetsResponse, results: StateResults) -> AlterShareGroupOffsetsResponse:
    """The response with each failed partition's own error."""
    found = {(topic_id, result.partition): result for topic_id, of_topic in results.items() for result in of_topic}

    def partition_answer(topic_id: str, partition: AlterOffsetsResponsePartition) -> AlterOffsetsResponsePartition:
        result = found.get((topic_id, partition.partition_index))
        if result is None:
            return partition  # refused by the group coordinator, so it was not sent
        return AlterOffsetsResponsePartition(partition.partition_index, result.error_code, result.error_message)

    return AlterShareGroupOffsetsResponse(responses=_with_partitions(response, partition_answer))


def _with_partitions(
    response: AlterShareGroupOffsetsResponse,
    answer_of: Callable[[str, AlterOffsetsResponsePartition], AlterOffsetsResponsePartition],
) -> tuple[AlterOffsetsResponseTopic, ...]:
    """The topics with other answers: `answer_of(topic id, partition)`."""
    return tuple(
        replace(topic, partitions=tuple(answer_of(topic.topic_id, partition) for partition in topic.partitions))
        for topic in response.responses
    )


# --- DescribeShareGroupOffsets ---


def describe_offsets(group_id: str) -> Flow[StateResults]:
    """DescribeShareGroupOffsets of all topics: a SummaryResult for each initialized partition.

    Raises Refused if the persister fails as a whole.
    """
    outcome: Outcome = yield Ask("initialized_share_group_partitions", group_id)
    partitions: TopicPartitionMap = outcome.response or {}
    if not partitions:
        return {}
    wanted = {
        topic_id: tuple(ReadPartition(one, NO_CHECK) for one in of_topic) for topic_id, of_topic in partitions.items()
    }
    results: StateResults = yield Persist("read_state_summary", group_id, wanted)
    return results


# --- DeleteShareGroupOffsets, DeleteGroups ---


def delete_offsets(request: DeleteShareGroupOffsetsRequest) -> Flow[DeleteShareGroupOffsetsResponse]:
    """DeleteShareGroupOffsets. A topic whose deletion failed stays `deleting`, and may be deleted again."""
    if not request.group_id:
        return _delete_error(ErrorCode.INVALID_GROUP_ID)
    outcome: Outcome = yield Ask("initiate_delete_share_group_offsets", request)
    if outcome.error is not None:
        return _delete_error(outcome.error.code, outcome.error.message)
    deletion: OffsetDeletion = outcome.response
    if deletion.error_code != ErrorCode.NONE:
        return _delete_error(ErrorCode(deletion.error_code), deletion.error_message)
    if not deletion.partitions:
        return DeleteShareGroupOffsetsResponse(responses=deletion.topics)
    try:
        results: StateResults = yield _delete_state(request.group_id, deletion.partitions)
    except Refused as failure:
        return _delete_error(failure.code)
    codes = {topic_id: _error_of_topic(of_topic) for topic_id, of_topic in results.items()}
    failed = (
        DeleteOffsetsResponseTopic(deletion.topic_names.get(topic_id), topic_id, code, DEFAULT_MESSAGE.get(code))
        for topic_id, code in codes.items()
        if code != ErrorCode.NONE
    )
    refused = (*deletion.topics, *failed)
    deleted = {topic_id: deletion.topic_names.get(topic_id) for topic_id, code in codes.items() if not code}
    if not deleted:
        return DeleteShareGroupOffsetsResponse(responses=refused)
    completion = CompleteOffsetDeletion(request.group_id, deleted, refused)
    outcome = yield Ask("complete_delete_share_group_offsets", completion)
    if outcome.error is not None:
        return _delete_error(outcome.error.code, outcome.error.message)
    response: DeleteShareGroupOffsetsResponse = outcome.response
    return response


def _delete_error(code: ErrorCode, message: str | None = None) -> DeleteShareGroupOffsetsResponse:
    text = DEFAULT_MESSAGE.get(code) if message is None else message
    return DeleteShareGroupOffsetsResponse(error_code=code, error_message=text)


def delete_groups(group_ids: tuple[str, ...]) -> Flow[tuple[DeletableGroupResult, ...]]:
    """DeleteGroups, for all types: a share group is deleted once the share coordinators have deleted its state.

    If they failed, the group stays, and its partitions are `deleting`; the request may be repeated.
    """
    outcome: Outcome = yield Ask("share_partition_delete_requests", group_ids)
    if outcome.error is not None:
        return tuple(DeletableGroupResult(group_id, outcome.error.code) for group_id in group_ids)
    failed: dict[str, ErrorCode] = {}
    doomed: tuple[DeleteShareState, ...] = outcome.response
    for wanted in doomed:
        code = ErrorCode(wanted.error_code)
        if code == ErrorCode.NONE:
            code = yield from _delete_group_state(wanted)
        if code != ErrorCode.NONE:
            failed[wanted.group_id] = code
    refused = tuple(DeletableGroupResult(group_id, code) for group_id, code in failed.items())
    retained = tuple(dict.fromkeys(group_id for group_id in group_ids if group_id not in failed))
    if not retained:
        return refused
    outcome = yield Ask("delete_groups", retained)
    if outcome.error is not None:
        return (*refused, *(DeletableGroupResult(group_id, outcome.error.code) for group_id in retained))
    return (*refused, *outcome.response)


def _delete_group_state(wanted: DeleteShareState) -> Flow[ErrorCode]:
    """The error, if any; if several topics failed, the last one's."""
    try:
        results: StateResults = yield _delete_state(wanted.group_id, wanted.partitions)
    except Refused as failure:
        return failure.code
    codes = [code for of_topic in results.values() if (code := _error_of_topic(of_topic))]
    return codes[-1] if codes else ErrorCode.NONE


def _delete_state(group_id: str, partitions: TopicPartitionMap) -> Persist:
    return Persist(
        "delete_state",
        group_id,
        {topic_id: tuple(DeletePartition(number) for number in numbers) for topic_id, numbers in partitions.items()},
    )


def _error_of_topic(results: Iterable[PartitionResult]) -> ErrorCode:
    return ErrorCode(next((result.error_code for result in results if result.error_code), ErrorCode.NONE))


# --- execution of flows ---


def persist(persister: Persister, step: Persist, on_done: Callable[[StateResults], None]) -> None:
    """Begin the calls of a step, one for each partition; `on_done` gets all results once the last one has arrived."""
    keys = [
        (SharePartitionKey(step.group_id, topic_id, request.partition), request)
        for topic_id, requests in step.partitions.items()
        for request in requests
    ]
    results: dict[str, list[PartitionResult]] = {}
    left = len(keys)

    def on_result_of(topic_id: str) -> Callable[[PartitionResult], None]:
        def on_result(result: PartitionResult) -> None:
            nonlocal left
            left -= 1
            results.setdefault(topic_id, []).append(result)
            if not left:
                on_done({name: tuple(of_topic) for name, of_topic in results.items()})

        return on_result

    for key, request in keys:
        persister.call(step.operation, key, request, on_result_of(key.topic_id))
