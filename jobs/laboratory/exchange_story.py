"""The story of a group from `truth/requests.jsonl` and `states.jsonl` of a simulation: who said what to whom, in a
person's words with Kafka's names.
"""

from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from coordinator_core.bytes.client_protocols import TopicPartitions, read_assignment, read_subscription
from coordinator_core.live.share_partition.states import AcknowledgeType, RecordState
from coordinator_core.replay.member_epochs import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
)
from coordinator_core.text import counted, duration_text
from jobs.console.conversation import Change, Conversation, Event, Message
from jobs.console.output import time_text
from simulator.simulation.exchange import CLIENT, GROUP, SHARE_PARTITION

Line = Mapping[str, Any]
Names = Mapping[str, str]
"""Member id -> client id, and topic id -> topic."""

NONE: Final = "NONE"
QUIET_ANSWERS: Final = frozenset(
    {
        "Heartbeat",
        "OffsetCommit",
        "TxnOffsetCommit",
        "InitProducerId",
        "EndTxn",
        "ConsumerGroupHeartbeat",
        "ShareGroupHeartbeat",
        "StreamsGroupHeartbeat",
        "ShareFetch",
        "ShareAcknowledge",
        "WriteShareGroupState",
    }
)
"""APIs whose requests say nothing new where they have no error, and the answer gives nothing."""
NEWS: Final = frozenset({"assignment", "activeTasks", "standbyTasks", "status"})
"""Fields of a response to a heartbeat that are there only when they changed."""
GIVEN_UP: Final = frozenset({RecordState.ARCHIVING, RecordState.ARCHIVED})
EPOCHS: Final = {
    JOIN_GROUP_MEMBER_EPOCH: "joins",
    LEAVE_GROUP_MEMBER_EPOCH: "leaves",
    LEAVE_GROUP_STATIC_MEMBER_EPOCH: "leaves for a while, as a static member",
}
IN_BETWEEN: Final = frozenset({"NONE", "PENDING", "AWAITING_JOIN", "AWAITING_SYNC", "MEMBER"})
"""Between these states of a member nothing happens that its requests and their answers do not say."""
NEVER_CAME: Final = ("PENDING", "NONE")
"""But that a member which got its id does not join with it."""
TIMERS: Final = {
    "join": "the join phase ends",
    "sync": "the time for SyncGroup is over",
    "heartbeat": "its session ends",
    "session": "its session ends",
    "rebalance": "its time to give partitions up is over",
    "initial": "the initial delay of the group is over",
}
"""First word of a coordinator's timer -> what it means."""


def story_of(
    group_id: str, requests: Iterable[Line], states: Iterable[Line], topics: Iterable[Line] = ()
) -> Conversation:
    """The conversation of one group's clients with the brokers, and of the brokers for it. `topics`: the lines of
    `topics.jsonl`, which name topic ids.
    """
    asked = [line for line in requests if line["group"] == group_id]
    changes = [line for line in states if line["group"] == group_id]
    names = _member_names(asked) | {line["topic_id"]: line["topic"] for line in topics}
    events: list[Event] = list(_messages(asked, names))
    events += [_change(line, names) for line in changes if _is_shown(line["from"], line["to"])]
    clients = sorted({line["client_id"] for line in asked if line["client_id"] is not None})
    brokers = {_broker(line["broker"]) for line in asked}
    brokers |= {_sender(line) for line in asked if line["client_id"] is None}
    events.sort(key=lambda event: (event.at_ms, _rank(event)))
    first, last = (end(event.at_ms for event in events) if events else None for end in (min, max))
    said = f"{counted(sum(line['count'] for line in asked), 'request')}, {counted(len(changes), 'change')} of state"
    title = f"Group {group_id}: {counted(len(clients), 'client')}, {said}, {time_text(first)} to {time_text(last)}"
    return Conversation(title, clients, sorted(brokers), events)


def _is_shown(before: str, after: str) -> bool:
    return not {before, after} <= IN_BETWEEN or (before, after) == NEVER_CAME


def _rank(event: Event) -> int:
    """At one time: a request, what it changes, its answer, and what the client makes of an answer."""
    if isinstance(event, Message):
        return 2 if event.is_answer else 0
    return 3 if event.what.startswith(CLIENT) else 1


def _sender(line: Line) -> str:
    client_id: str | None = line["client_id"]
    return _broker(line["from_broker"]) if client_id is None else client_id


def _broker(broker_id: int | None) -> str:
    return "?" if broker_id is None else f"broker-{broker_id}"


def _member_names(asked: Iterable[Line]) -> dict[str, str]:
    names = {}
    for line in asked:
        for message in (line["request"], line["response"] or {}):
            member_id = message.get("memberId") if isinstance(message, dict) else None
            if member_id:
                names[member_id] = line["client_id"]
    return names


def _change(line: Line, names: Names) -> Change:
    name = names.get(line["name"], line["name"])
    what = line["kind"] if line["kind"] == GROUP else f"{line['kind']} {name}"
    whose = "" if line["kind"] == GROUP else name.rpartition(" on ")[2] if line["kind"] == SHARE_PARTITION else name
    return Change(line["ts_ms"], whose, what, line["from"], line["to"], _why(line["why"], names))


def _why(why: str, names: Names) -> str:
    kind, _, key = why.partition(" ")
    if kind != "timer":
        return why
    said = TIMERS.get(key.partition("-")[0])
    if said is None:
        return why
    member = next((name for member_id, name in names.items() if key.endswith(member_id)), None)
    return said if member is None else f"{member}: {said}"


def _messages(asked: Iterable[Line], names: Names) -> Iterator[Message]:
    """Each request and its answer. One that changes nothing, or repeats the one before with the same error, is shown
    with its answer in one."""
    shown: dict[tuple[str, str], tuple[Any, str]] = {}
    for line in sorted(asked, key=lambda line: (line["asked_ms"], line["number"])):
        place, said = (_sender(line), line["api"]), (line["request"], line["error"])
        is_repeated = shown.get(place) == said and line["error"] not in (NONE, None)
        is_quiet = is_repeated or (line["error"] == NONE and line["api"] in QUIET_ANSWERS and not _has_news(line))
        shown[place] = said
        request, answer = WORDS.get(line["api"], (_nothing, _nothing))
        sender, receiver = _sender(line), _broker(line["broker"])
        asked_for = Message(
            line["asked_ms"],
            sender,
            receiver,
            line["api"],
            request(line, names),
            is_quiet=is_quiet,
            outcome=line["error"] if is_repeated else "",
            count=line["count"],
            until_ms=line["last_ms"],
        )
        yield asked_for
        if is_quiet:
            continue
        if line["error"] is None:
            text = "no answer until the end"
        elif line["response"] is None and line["error"] == "REQUEST_TIMED_OUT":
            text = "no answer: it is down"
        elif line["error"] == NONE:
            text = answer(line, names) or "done"
        else:
            text = ": ".join(filter(None, (line["error"], _of_error(line))))
        is_error, waited_ms = line["error"] != NONE, line["waited_ms"] or 0
        yield Message(line["ts_ms"], receiver, sender, line["api"], text, True, is_error, waited_ms)


def _has_news(line: Line) -> bool:
    request, response = line["request"], line["response"] or {}
    if line["api"] in ("ShareFetch", "ShareAcknowledge"):
        has_records = line["api"] == "ShareFetch" and bool(response.get("responses"))
        return has_records or request["shareSessionEpoch"] <= 0
    if line["api"] == "WriteShareGroupState":
        states = {batch["deliveryState"] for _, at in _partitions_in(request["topics"]) for batch in at["stateBatches"]}
        return not GIVEN_UP.isdisjoint(states)
    epoch = request.get("memberEpoch", 1)
    return epoch <= 0 or epoch != response.get("memberEpoch", epoch) or not NEWS.isdisjoint(response)


def _of_error(line: Line) -> str:
    response = line["response"] or {}
    if line["error"] == "MEMBER_ID_REQUIRED":
        return f"join again as {response['memberId']}"
    return str(response.get("errorMessage", ""))


def _partitions_in(topics: Iterable[Line]) -> Iterator[tuple[str, Line]]:
    """Each partition of a message, with the name of its topic, or with its id where the message has that."""
    for topic in topics:
        name = next(topic[key] for key in ("name", "topic", "topicId") if key in topic)
        yield from ((name, at) for at in topic["partitions"])


# --- the words of each API: of the request, of the answer without an error ---


def _find(line: Line, names: Names) -> str:
    kinds = ("group", "transactional id", "share partition")
    return f"of {kinds[line['request']['keyType']]} {', '.join(line['request']['coordinatorKeys'])}"


def _join(line: Line, names: Names) -> str:
    request = line["request"]
    who = "with its member id" if request["memberId"] else "without a member id"
    if request.get("groupInstanceId"):
        who += f", static as {request['groupInstanceId']}"
    assignors = ", ".join(protocol["name"] for protocol in request["protocols"])
    session, rebalance = (duration_text(request[name]) for name in ("sessionTimeoutMs", "rebalanceTimeoutMs"))
    reason = request.get("reason") or ""
    why = f", since {reason}" if reason and not reason.endswith(request["memberId"] or "?") else ""
    return f"{who}: session {session}, rebalance {rebalance}, {assignors}{_owned(request)}{why}"


def _owned(request: Line) -> str:
    """What a member still has when it joins: cooperative members keep their partitions."""
    for protocol in request["protocols"]:
        read = read_subscription(b64decode(protocol["metadata"])).subscription
        if read is not None and read.owned_partitions:
            return f", keeps {_partitions(read.owned_partitions)}"
    return ""


def _joined(line: Line, names: Names) -> str:
    response = line["response"]
    generation = f"generation {response['generationId']} by {response['protocolName']}"
    if response["leader"] != response["memberId"]:
        return f"{generation}; {names.get(response['leader'], response['leader'])} leads"
    members = ", ".join(names.get(member["memberId"], member["memberId"]) for member in response["members"])
    return f"{generation}; it leads {members}"


def _sync(line: Line, names: Names) -> str:
    request = line["request"]
    plans = "; ".join(
        f"{names.get(plan['memberId'], plan['memberId'])} {_assigned(plan['assignment'])}"
        for plan in request["assignments"]
    )
    return f"generation {request['generationId']}" + (f": {plans}" if plans else "")


def _assigned(assignment: str) -> str:
    read = read_assignment(b64decode(assignment)).assigned
    return _partitions(read or ()) or "nothing"


def _partitions(partitions: TopicPartitions) -> str:
    return ", ".join(f"{topic} {_numbers(numbers)}" for topic, numbers in partitions)


def _numbers(numbers: Sequence[int]) -> str:
    """`0..2, 5`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("..".join(map(str, part)) for part in parts)


def _epoch(line: Line, names: Names) -> str:
    request = line["request"]
    epoch = request["memberEpoch"]
    said = EPOCHS.get(epoch, f"epoch {epoch}")
    if request.get("instanceId"):
        said += f", static as {request['instanceId']}"
    if request.get("subscribedTopicNames"):
        said += f", subscribes to {', '.join(request['subscribedTopicNames'])}"
    owned = request.get("topicPartitions")
    return said if owned is None else f"{said}, has {_of_topics(owned, names) or 'nothing'}"


def _new_epoch(line: Line, names: Names) -> str:
    response = line["response"]
    said = f"epoch {response['memberEpoch']}"
    assignment = response.get("assignment")
    if assignment is not None:
        said += f", it should have {_of_topics(assignment['topicPartitions'], names) or 'nothing'}"
    if response.get("activeTasks") is not None:
        tasks = (f"{task['subtopologyId']} {_numbers(task['partitions'])}" for task in response["activeTasks"])
        said += f", active tasks {', '.join(tasks) or 'none'}"
    status = "; ".join(entry["statusDetail"] for entry in response.get("status") or ())
    return f"{said}; {status}" if status else said


def _of_topics(topics: Sequence[Line], names: Names) -> str:
    named = ((names.get(topic["topicId"], topic["topicId"]), topic["partitions"]) for topic in topics)
    return _partitions(tuple(named))


def _commit(line: Line, names: Names) -> str:
    return "; ".join(
        f"{topic['name']} "
        + ", ".join(f"{at['partitionIndex']}: {at['committedOffset']}" for at in topic["partitions"])
        for topic in line["request"]["topics"]
    )


def _fetch_offsets(line: Line, names: Names) -> str:
    topics = line["request"]["groups"][0].get("topics") or ()
    return ", ".join(f"{topic['name']} {_numbers(topic['partitionIndexes'])}" for topic in topics)


def _offsets(line: Line, names: Names) -> str:
    found = [
        f"{topic} {at['partitionIndex']}: {at['committedOffset']}"
        for topic, at in _partitions_in(line["response"]["groups"][0]["topics"])
        if at["committedOffset"] >= 0
    ]
    return ", ".join(found) or "nothing committed"


def _share_fetch(line: Line, names: Names) -> str:
    request = line["request"]
    epochs = {0: "opens a session", -1: "closes the session"}
    said = epochs.get(request["shareSessionEpoch"], f"session epoch {request['shareSessionEpoch']}")
    batches = [
        f"{topic}-{at['partitionIndex']} {_range(batch)} {_acknowledged(batch)}"
        for topic, at in _partitions_in(request["topics"])
        for batch in at["acknowledgementBatches"]
    ]
    return ", ".join([said, *batches])


def _acknowledged(batch: Line) -> str:
    return "/".join(dict.fromkeys(AcknowledgeType(kind).name for kind in batch["acknowledgeTypes"]))


def _acquired(line: Line, names: Names) -> str:
    answered = [(f"{topic}-{at['partitionIndex']}", at) for topic, at in _partitions_in(line["response"]["responses"])]
    found = [
        f"{place} {_range(records)} (delivery {records['deliveryCount']})"
        for place, at in answered
        for records in at["acquiredRecords"]
    ]
    refused = [
        f"{place} {at['acknowledgeError'].removesuffix('Exception')}"
        for place, at in answered
        if at.get("acknowledgeError")
    ]
    said = [f"it acquires {', '.join(found)}"] if found else []
    return "; ".join([*said, *(f"its acknowledgements are refused: {error}" for error in refused)])


def _range(offsets: Line) -> str:
    first, last = offsets["firstOffset"], offsets["lastOffset"]
    return str(first) if first == last else f"{first}..{last}"


def _of_share_state(line: Line, names: Names) -> str:
    return "; ".join(
        f"of {names.get(topic, topic)}-{at['partition']}{_state(at) if 'stateBatches' in at else ''}"
        for topic, at in _partitions_in(line["request"]["topics"])
    )


def _share_state(line: Line, names: Names) -> str:
    return "; ".join(
        f"{names.get(topic, topic)}-{at['partition']}{_state(at)}"
        for topic, at in _partitions_in(line["response"]["results"])
    )


def _state(at: Line) -> str:
    """The state of a share partition, ranges of one state and delivery count joined."""
    joined: list[list[int]] = []
    for batch in at.get("stateBatches", ()):
        first, last, *state = (batch[name] for name in STATE_BATCH)
        if joined and joined[-1][1] == first - 1 and joined[-1][2:] == state:
            joined[-1][1] = last
        else:
            joined.append([first, last, *state])
    ranges = (
        f", {_range({'firstOffset': first, 'lastOffset': last})} {RecordState(state).name} (delivery {count})"
        for first, last, state, count in joined
    )
    return f": start offset {at['startOffset']}{''.join(ranges)}"


STATE_BATCH: Final = ("firstOffset", "lastOffset", "deliveryState", "deliveryCount")


Words = Callable[[Line, Names], str]


def _nothing(line: Line, names: Names) -> str:
    return ""


WORDS: Final[Mapping[str, tuple[Words, Words]]] = {
    "FindCoordinator": (
        _find,
        lambda line, names: f"it is {_broker(line['response']['coordinators'][0]['nodeId'])}",
    ),
    "JoinGroup": (_join, _joined),
    "SyncGroup": (_sync, lambda line, names: f"it gets {_assigned(line['response']['assignment'])}"),
    "Heartbeat": (lambda line, names: f"generation {line['request']['generationId']}", _nothing),
    "LeaveGroup": (
        lambda line, names: "; ".join(member.get("reason") or "" for member in line["request"]["members"]),
        _nothing,
    ),
    "ConsumerGroupHeartbeat": (_epoch, _new_epoch),
    "ShareGroupHeartbeat": (_epoch, _new_epoch),
    "StreamsGroupHeartbeat": (_epoch, _new_epoch),
    "OffsetCommit": (_commit, _nothing),
    "TxnOffsetCommit": (_commit, _nothing),
    "OffsetFetch": (_fetch_offsets, _offsets),
    "EndTxn": (lambda line, names: "COMMIT" if line["request"]["committed"] else "ABORT", _nothing),
    "ShareFetch": (_share_fetch, _acquired),
    "ShareAcknowledge": (_share_fetch, _nothing),
    **{f"{verb}ShareGroupState": (_of_share_state, _nothing) for verb in ("Initialize", "Write", "Delete")},
    **{f"ReadShareGroupState{what}": (_of_share_state, _share_state) for what in ("", "Summary")},
}
"""API -> the words of its request, and of its answer."""
