"""What clients, brokers and coordinators say to each other, and the states that this leads them through.

`truth/requests.jsonl` has a line for every request to a broker, when it is answered; `truth/states.jsonl` one for every
change of a state: of groups, of their members according to the coordinator, of the clients, and of share partitions, on
their leaders and at the share coordinator. The docstring of the package has the format. Only the part that a `Watch`
names is recorded: a busy day has millions of requests.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, IntEnum
from typing import Any, Final

from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.classic.live import LiveClassicGroup
from coordinator_core.live.coordinator.operation import Fired
from coordinator_core.live.coordinator.shard import GroupCoordinator
from coordinator_core.live.find_coordinator.broker import FindCoordinatorRequest, Found
from coordinator_core.live.offsets.messages import OffsetFetchRequest, OffsetFetchResponse
from coordinator_core.live.share_partition.state import AcknowledgementBatch
from coordinator_core.replay.share_state.state import SharePartition
from schemas.error_codes import ErrorCode
from schemas.wire import camel_case
from simulator.simulation.clients.share_messages import SHARE_ACKNOWLEDGE, ShareFetchRequest, ShareFetchResponse
from simulator.simulation.truth import Facts, Truth

REQUESTS: Final = "requests"
STATES: Final = "states"
"""The files."""

SHARE_ACKNOWLEDGE_API: Final = "ShareAcknowledge"
APIS: Final = {
    SHARE_ACKNOWLEDGE: SHARE_ACKNOWLEDGE_API,
    "initialize_state": "InitializeShareGroupState",
    "read_state": "ReadShareGroupState",
    "read_state_summary": "ReadShareGroupStateSummary",
    "write_state": "WriteShareGroupState",
    "delete_state": "DeleteShareGroupState",
}
"""Operation -> its API, where the class of the request is not named after it."""
NOT_SENT: Final = frozenset({"initialize_share_state", "creatable_topics", "api_version", "retention_time_ms"})
"""Fields that are not in the message: the broker keeps the first two for itself, the last is in no version since 5."""
COORDINATOR: Final = ("key", "nodeId", "errorCode")
"""Fields of FindCoordinatorResponse.Coordinator, but for the address: a simulation has none."""
NEVER_MS: Final = 2**63 - 1
NONE_YET: Final = "NONE"
"""The state of what does not exist."""
GROUP, MEMBER = "group", "member"
CLIENT: Final = "client"
SHARE_PARTITION: Final = "share partition"
SHARE_STATE: Final = "share state"
"""Kinds of what has a state: the first two at the group coordinator, the last one at the share coordinator."""


@dataclass(frozen=True, slots=True)
class Watch:
    """The part of an exchange to record: these groups (None: all), from a time to another (epoch ms, exclusive)."""

    group_ids: frozenset[str] | None = None
    from_ms: int = 0
    to_ms: int = NEVER_MS

    def has(self, group_id: str | None, now_ms: int) -> bool:
        is_group = self.group_ids is None or group_id in self.group_ids
        return is_group and self.from_ms <= now_ms < self.to_ms


class Exchange:
    """Records one simulation's exchange. `watch` None: nothing."""

    def __init__(self, truth: Truth, now_ms: Callable[[], int], watch: Watch | None) -> None:
        self._truth = truth
        self._now_ms = now_ms
        self._watch = watch
        self.is_watching = watch is not None
        """Is anything recorded?"""
        self._number = 0
        self._open: dict[int, Facts] = {}
        """Number of a request -> its line, as far as it is known."""
        self._states: dict[str, dict[tuple[str, str], str]] = {}
        """Group -> (kind, name) -> state."""
        self._coordinators: dict[str, GroupCoordinator] = {}
        """Group -> the coordinator that had it last."""

    # --- requests ---

    def asked(
        self,
        group_id: str | None,
        sender: str | int,
        broker_id: int | None,
        request: Any,
        *,
        operation: str = "",
        version: int = -1,
        at_ms: int | None = None,
    ) -> int:
        """A request reaches a broker. Returns its number for `answered`; 0: it is not recorded.

        `sender`: the client id, or the number of the broker that asks another one. `version`: of its API; -1: the
        model has none. `at_ms`: when it would have come; None: now.
        """
        asked_ms = self._now_ms() if at_ms is None else at_ms
        if self._watch is None or not self._watch.has(group_id, asked_ms):
            return 0
        self._number += 1
        api = api_of(request, operation)
        self._open[self._number] = {
            "number": self._number,
            "asked_ms": asked_ms,
            "client_id": sender if isinstance(sender, str) else None,
            "from_broker": sender if isinstance(sender, int) else None,
            "broker": broker_id,
            "group": group_id,
            "api": api,
            "version": None if version < 0 else version,
            "request": message_json(api, request),
        }
        return self._number

    def answered(self, number: int, response: Any, error: ErrorCode | None = None) -> None:
        """The broker answers a request; or, with REQUEST_TIMED_OUT in place of a response, it never will."""
        facts = self._open.pop(number, None)
        if facts is not None:
            self._write(facts, message_json(facts["api"], response), error_of(response) if error is None else error)

    def skipped(self, group_id: str, sender: str, broker_id: int | None, request: Any, times_ms: range) -> None:
        """Heartbeats of a quiet group that would have reached the broker at these times, and been answered without
        news: they are not sent.
        """
        seen = [at_ms for at_ms in times_ms if self._watch is not None and self._watch.has(group_id, at_ms)]
        if seen:
            number = self.asked(group_id, sender, broker_id, request, at_ms=seen[0])
            self._write(self._open.pop(number), None, ErrorCode.NONE, len(seen), seen[-1])

    def end(self) -> None:
        """The clock stops: write the requests that still wait for an answer."""
        for number in tuple(self._open):
            self._write(self._open.pop(number), None, None)

    def _write(
        self, facts: Facts, response: Any, error: ErrorCode | None, count: int = 1, last_ms: int | None = None
    ) -> None:
        now_ms = self._now_ms()
        answer = {
            "response": response,
            "error": None if error is None else error.name,
            "waited_ms": now_ms - facts["asked_ms"] if last_ms is None and error is not None else None,
            "count": count,
            "last_ms": last_ms,
        }
        self._truth.record(REQUESTS, now_ms, facts | answer)

    # --- states ---

    def moved(self, group_id: str, kind: str, name: str, state: str | None, why: str) -> None:
        """Note a state if it is another one than before; None: what had it is gone.

        Also outside of the times to record: a later change begins from the state before it.
        """
        watch = self._watch
        if watch is None or not (watch.group_ids is None or group_id in watch.group_ids):
            return
        states = self._states.setdefault(group_id, {})
        before = states.pop((kind, name), NONE_YET)
        if state is not None:
            states[kind, name] = state
        after = state or NONE_YET
        now_ms = self._now_ms()
        if before != after and watch.has(group_id, now_ms):
            facts = {"group": group_id, "kind": kind, "name": name, "from": before, "to": after, "why": why}
            self._truth.record(STATES, now_ms, facts)

    def coordinator_moved(
        self, coordinator: GroupCoordinator, group_id: str | None, why: str, fired: Iterable[Fired] = ()
    ) -> None:
        """A coordinator served a request, or ran timers or tasks: note what has changed. `group_id` None: perhaps any
        group, also one that is gone."""
        if self._watch is None:
            return
        timers = [(str(one.arguments[0]) if one.arguments else None, f"timer {one.key}") for one in fired]
        for of_group, reason in timers or [(group_id, why)]:
            known = (known for known, its in self._coordinators.items() if its is coordinator)
            every = dict.fromkeys((*coordinator.group_ids(), *known)) if of_group is None else (of_group,)
            for one in every:
                self._compare(coordinator, one, reason)

    def _compare(self, coordinator: GroupCoordinator, group_id: str, why: str) -> None:
        before, after = self._states.get(group_id, {}), states_of(coordinator.group(group_id))
        if after:
            self._coordinators[group_id] = coordinator
        gone = [place for place in before if place[0] in {GROUP, MEMBER} and place not in after]
        for kind, name in (*after, *gone):
            self.moved(group_id, kind, name, after.get((kind, name)), why)

    def persisted(self, group_id: str, name: str, state: SharePartition | None, why: str) -> None:
        """The share coordinator served a request about a share partition, whose persisted state is this now."""
        epochs = None if state is None else f"state epoch {state.state_epoch}, leader epoch {state.leader_epoch}"
        self.moved(group_id, SHARE_STATE, name, epochs, why)


def states_of(group: Any) -> dict[tuple[str, str], str]:
    """The states of a group and of its members, as its coordinator has them: (kind, id) -> state.

    Members of classic groups have no state in Kafka: theirs says what they wait for.
    """
    if group is None:
        return {}
    states = {(GROUP, group.group_id): group.state.value}
    if isinstance(group, LiveClassicGroup):
        states |= {(MEMBER, member_id): "PENDING" for member_id in sorted(group.pending_join_members)}
        for member in group.members.values():
            waits = "JOIN" if member.awaiting_join is not None else "SYNC" if member.awaiting_sync is not None else ""
            states[MEMBER, member.member_id] = f"AWAITING_{waits}" if waits else "MEMBER"
        return states
    for member_id, member in sorted(group.members.items()):
        state = getattr(member, "state", None)
        name = state.name if isinstance(state, IntEnum) else "MEMBER"
        states[MEMBER, member_id] = f"{name} at epoch {member.member_epoch}"
    return states


def api_of(request: Any, operation: str = "") -> str:
    """Kafka's name of a request's API."""
    return APIS.get(operation) or type(request).__name__.removesuffix("Request")


def error_of(response: Any) -> ErrorCode:
    """The error of a response: of the whole, or the first one of its parts."""
    code = getattr(response, "error_code", None)
    if code:
        return ErrorCode(code)
    parts = (getattr(response, name.name) for name in fields(response)) if is_dataclass(response) else response
    parts = parts.values() if isinstance(parts, Mapping) else parts
    if not isinstance(parts, str | bytes) and isinstance(parts, Iterable):
        found = (error_of(part) for part in parts if is_dataclass(part) or isinstance(part, tuple))
        return next((error for error in found if error), ErrorCode.NONE)
    return ErrorCode.NONE


def message_json(api: str, message: Any) -> Any:
    """A request or response with Kafka's field names, without the fields that are null; bytes in base64, as Kafka
    prints them.
    """
    match message:
        case FindCoordinatorRequest():
            return {"keyType": int(message.key_type), "coordinatorKeys": list(message.keys)}
        case Found():
            answers = ((answer.key, answer.node.node_id, int(answer.error_code)) for answer in message.coordinators)
            return {"coordinators": [dict(zip(COORDINATOR, answer, strict=True)) for answer in answers]}
        case OffsetFetchRequest():  # from version 8 on the request is for several groups
            return {"groups": [_json(message, NOT_SENT)], "requireStable": True}
        case OffsetFetchResponse():
            return {"groups": [_json(message, NOT_SENT)]}
        case ShareFetchRequest():
            return _share_fetch(message, api)
        case ShareFetchResponse():
            return _share_fetch_response(message, api)
    return _json(message, NOT_SENT | {"topic_id"} if api == "TxnOffsetCommit" else NOT_SENT)


def _json(value: Any, left_out: frozenset[str]) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [_json(item, left_out) for item in value]
    names = [item.name for item in fields(value)] if is_dataclass(value) else getattr(value, "_fields", None)
    if names is None:
        return value
    named = {name: getattr(value, name) for name in names if name not in left_out}
    return {camel_case(name): _json(item, left_out) for name, item in named.items() if item is not None}


def _share_fetch(request: ShareFetchRequest, api: str) -> dict[str, Any]:
    """ShareFetchRequest.json and ShareAcknowledgeRequest.json, but with names of topics in place of ids."""

    def partition(at: TopicPartition) -> dict[str, Any]:
        batches = request.acknowledgements.get(at, ())
        return {"partitionIndex": at.partition, "acknowledgementBatches": [_acknowledged(batch) for batch in batches]}

    wanted = dict.fromkeys((*request.partitions, *request.acknowledgements))
    both = {
        "groupId": request.group_id,
        "memberId": request.member_id,
        "shareSessionEpoch": request.session_epoch,
        "topics": _by_topic(wanted, partition),
    }
    if api == SHARE_ACKNOWLEDGE_API:
        return both
    return both | {
        "maxWaitMs": request.max_wait_ms,
        "minBytes": request.min_bytes,
        "maxBytes": request.max_bytes,
        "maxRecords": request.max_records,
        "batchSize": request.max_records,
        "shareAcquireMode": int(request.is_record_limit),
        "forgottenTopicsData": _by_topic(request.forgotten, lambda at: at.partition),
    }


def _acknowledged(batch: AcknowledgementBatch) -> dict[str, Any]:
    named = ("firstOffset", "lastOffset", "acknowledgeTypes")
    return dict(zip(named, (batch.first_offset, batch.last_offset, list(batch.acknowledge_types)), strict=True))


def _share_fetch_response(response: ShareFetchResponse, api: str) -> dict[str, Any]:
    def partition(at: TopicPartition) -> dict[str, Any]:
        found: dict[str, Any] = {"partitionIndex": at.partition}
        if api != SHARE_ACKNOWLEDGE_API:
            found["acquiredRecords"] = _json(response.acquired.get(at, ()), NOT_SENT)
        error = response.acknowledge_errors.get(at)
        return found if error is None else found | {"acknowledgeError": error}

    named = dict.fromkeys((*response.acquired, *response.acknowledge_errors))
    return {
        "errorCode": int(response.error_code),
        "acquisitionLockTimeoutMs": response.lock_timeout_ms,
        "responses": _by_topic(named, partition),
    }


def _by_topic(places: Iterable[TopicPartition], partition: Callable[[TopicPartition], Any]) -> list[dict[str, Any]]:
    topics: dict[str, list[Any]] = {}
    for at in places:
        topics.setdefault(at.topic, []).append(partition(at))
    return [{"topic": topic, "partitions": found} for topic, found in topics.items()]
