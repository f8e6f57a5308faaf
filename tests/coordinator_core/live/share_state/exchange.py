"""A persister whose requests are answered at once."""

from collections.abc import Callable

from coordinator_core.live.share_state.messages import Response
from coordinator_core.live.share_state.persister import Lookup, Persister, Send
from coordinator_core.replay.lookup import SharePartitionKey
from schemas.error_codes import ErrorCode


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
