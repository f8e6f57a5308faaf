"""A persister whose requests are answered at once, and a share coordinator that has all share partitions."""

from collections.abc import Callable

from coordinator_core.live.share_state.coordinator import ShareCoordinator
from coordinator_core.live.share_state.messages import Response, Result, StateRequest, TopicResult
from coordinator_core.live.share_state.persister import Lookup, Persister, Send
from coordinator_core.live.share_state.records import AppendedRecord
from coordinator_core.replay.lookup import SharePartitionKey
from schemas.error_codes import ErrorCode


def served(
    coordinator: ShareCoordinator, operation: str, request: StateRequest, now_ms: int
) -> tuple[Response, tuple[AppendedRecord, ...]]:
    """The answer to a whole request, one operation for each share partition in its order, and what was written. Of a
    share partition that it names twice the last result counts."""
    results: dict[str, dict[int, Result]] = {}
    records: list[AppendedRecord] = []
    for topic in request.topics:
        for data in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id, data.partition)
            results.setdefault(topic.topic_id, {})[data.partition], written = coordinator.run(
                operation, key, data, now_ms=now_ms
            )
            records += written
    topics = (TopicResult(topic_id, tuple(of_topic.values())) for topic_id, of_topic in results.items())
    return Response(tuple(topics)), tuple(records)


def exchange(
    persister: Persister,
    find: Callable[[SharePartitionKey], int | ErrorCode],
    serve: Callable[[Send], Response | ErrorCode],
    now_ms: int,
) -> None:
    """Send everything that the persister has to send, with immediate responses, until nothing is left. Back-offs
    stay."""
    while sent := persister.requests():
        for request in sent:
            if isinstance(request, Lookup):
                persister.on_lookup(request.request_id, find(request.key), now_ms)
            else:
                persister.on_response(request.request_id, serve(request), now_ms)
