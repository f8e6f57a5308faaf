"""Conformance of the live coordinator with GroupCoordinatorShard: the same requests, step by step.

A step is right when the answer, the errors, the records, the answers which became available, the timers which ran and
the state after it are Kafka's. Where Kafka's order is that of a hash map, order does not count: members, topics and
partitions in answers, and records of one kind and one group. A case is judged up to `kafkaBugFromStep`.

A case which needs an operation that no group type serves is *not judged*, whatever the steps before gave: such cases
are counted apart and are no passes. A group type's operations are made known to the judge by a line in `OPERATIONS`.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from coordinator_core.bytes.codec import decode_value
from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.bytes.printed.kafka_json import to_json
from coordinator_core.live.classic.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from coordinator_core.live.consumer.messages import ConsumerGroupHeartbeatRequest
from coordinator_core.live.coordinator.config import config_of
from coordinator_core.live.coordinator.errors import UnknownOperation
from coordinator_core.live.coordinator.group_module import GroupModule
from coordinator_core.live.coordinator.image import Topic, image_of
from coordinator_core.live.coordinator.modules import MODULES
from coordinator_core.live.coordinator.operation import Outcome
from coordinator_core.live.coordinator.records import AppendedRecord, Producer, encode_record
from coordinator_core.live.coordinator.shard import GroupCoordinator
from coordinator_core.live.offsets.messages import (
    DeletedTopic,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)
from coordinator_core.live.share.messages import ShareGroupHeartbeatRequest, ShareStatePartitions
from coordinator_core.live.streams.messages import StreamsGroupHeartbeatRequest
from schemas.consumer_offsets import TOPIC, RecordType
from tests.conformance.families.cases import Json, read_cases
from tests.conformance.families.group_replay import differs, fold
from tests.coordinator_core.logs import CountingLog
from tests.message_json import json_of, message_of

UUID_CHARACTERS = 36
MEMBER_IN_ERROR = re.compile(r"Member (\S+)'s protocols are not supported\.")
"""JoinGroup: the id of a new member of a consumer group is in the error only."""
TOPIC_IDS_FROM_VERSION = {"commitOffset": 10, "commitTransactionalOffset": 6}
"""From here on the answer has topic ids, before names."""


class Operation(NamedTuple):
    """How a step of a trace is put to the coordinator."""

    name: str
    request: Callable[[Any], Any]


def _txn_commit_request(node: Json) -> TxnOffsetCommitRequest:
    """From version 6 on the generation has another name."""
    return message_of(
        TxnOffsetCommitRequest,
        {"generationId" if name == "generationIdOrMemberEpoch" else name: value for name, value in node.items()},
    )


def _fetch_request(node: Json) -> OffsetFetchRequest:
    """The traces read at the latest state; there Kafka withholds unstable offsets whatever the request says."""
    return message_of(OffsetFetchRequest, {name: value for name, value in node.items() if name != "requireStable"})


OPERATIONS: dict[str, Operation] = {
    "classicJoin": Operation("classic_join", partial(message_of, JoinGroupRequest)),
    "classicSync": Operation("classic_sync", partial(message_of, SyncGroupRequest)),
    "classicHeartbeat": Operation("classic_heartbeat", partial(message_of, HeartbeatRequest)),
    "classicLeave": Operation("classic_leave", partial(message_of, LeaveGroupRequest)),
    "commitOffset": Operation("commit_offset", partial(message_of, OffsetCommitRequest)),
    "commitTransactionalOffset": Operation("commit_transactional_offset", _txn_commit_request),
    "fetchOffsets": Operation("fetch_offsets", _fetch_request),
    "consumerGroupHeartbeat": Operation("consumer_group_heartbeat", partial(message_of, ConsumerGroupHeartbeatRequest)),
    "deleteOffsets": Operation("delete_offsets", partial(message_of, OffsetDeleteRequest)),
    "deleteGroups": Operation("delete_groups", tuple),
    "onTopicsDeleted": Operation("on_topics_deleted", lambda node: (message_of(DeletedTopic, node),)),
    "shareGroupHeartbeat": Operation("share_group_heartbeat", partial(message_of, ShareGroupHeartbeatRequest)),
    "initializeShareGroupState": Operation("initialize_share_group_state", partial(message_of, ShareStatePartitions)),
    "uninitializeShareGroupState": Operation(
        "uninitialize_share_group_state", partial(message_of, ShareStatePartitions)
    ),
    "sharePartitionDeleteRequests": Operation("share_partition_delete_requests", lambda node: (node["groupId"],)),
    "maybeCleanupShareGroupState": Operation(
        "maybe_cleanup_share_group_state", lambda node: (message_of(DeletedTopic, node),)
    ),
    "streamsGroupHeartbeat": Operation("streams_group_heartbeat", partial(message_of, StreamsGroupHeartbeatRequest)),
}


APART_FROM_THE_ANSWER = {"initializeShareState": "_initializeShareState", "creatableTopics": "_creatableTopics"}
"""Fields of our responses which are no part of Kafka's, and their names in the traces."""

NOT_ASKED = {
    "describeGroups",
    "consumerGroupDescribe",
    "shareGroupDescribe",
    "streamsGroupDescribe",
    "listGroups",
}
"""Steps that only look at groups, which neither simulate nor whatif does: what they saw is in the state, which is
compared after each step. The coordinator learns the time of them."""

UNANSWERED = {"sharePartitionDeleteRequests"}
"""Operations of which the traces leave the answer out."""


class Verdict(NamedTuple):
    """What was found in one case."""

    steps: int
    """Steps which were judged and are right."""
    failure: str | None = None
    unserved: str | None = None
    """The operation which nobody serves: the case was not judged."""


class Report(NamedTuple):
    """All cases of a trace."""

    cases: int
    passed: int
    not_judged: int
    unserved: dict[str, int]
    """Operation -> cases which it kept from being judged."""
    steps: int
    failures: list[str]


def judge_all(
    path_to_jsonl_gz: str | Path, modules: Iterable[GroupModule] = MODULES, version: KafkaVersion = DEFAULT_VERSION
) -> Report:
    """Judge every case of a trace."""
    modules = tuple(modules)
    failures: list[str] = []
    unserved: dict[str, int] = defaultdict(int)
    cases = passed = steps = 0
    for case in read_cases(path_to_jsonl_gz):
        cases += 1
        verdict = judge(case, modules, version)
        steps += verdict.steps
        if verdict.failure is not None:
            failures.append(f"case {case['id']}: {verdict.failure}")
        elif verdict.unserved is not None:
            unserved[verdict.unserved] += 1
        else:
            passed += 1
    return Report(cases, passed, sum(unserved.values()), dict(unserved), steps, failures)


def judge(case: Json, modules: Iterable[GroupModule] = MODULES, version: KafkaVersion = DEFAULT_VERSION) -> Verdict:
    """Play one case."""
    player = Player(case, modules, version)
    first_bug = case["kafkaBugFromStep"]
    steps = case["steps"] if first_bug < 0 else case["steps"][:first_bug]
    for number, step in enumerate(steps):
        try:
            failure = player.play(step)
        except UnknownOperation as error:
            return Verdict(number, unserved=f"{step['op']}: {error}")
        if failure is not None:
            return Verdict(number, f"step {number} ({step['op']}): {failure}")
    return Verdict(len(steps))


class Player:
    """One coordinator, and the state in which Kafka's was after the same steps."""

    def __init__(self, case: Json, modules: Iterable[GroupModule], version: KafkaVersion = DEFAULT_VERSION) -> None:
        topics = [Topic(topic["name"], topic["topicId"], topic["partitions"]) for topic in case["topics"]]
        self.coordinator = GroupCoordinator(
            modules,
            now_ms=case["startTimeMs"],
            config=config_of(case["config"], version),
            image=image_of(topics),
            log=CountingLog(case["startLogOffset"]),
        )
        self.expected: dict[str, Json] = {}
        self.steps = case["steps"]

    def play(self, step: Json) -> str | None:
        """What is wrong in one step, or None. Raises UnknownOperation."""
        outcome = self._do(step)
        fold(self.expected, step["stateChanges"])
        return (
            _answer_differs(step, outcome)
            or _records_differ(step, outcome)
            or _completed_differ(step, outcome)
            or _fired_differ(step, outcome)
            or _tasks_differ(step, outcome)
            or differs(canonical(self.coordinator.dump()), canonical(self.expected))
        )

    def _do(self, step: Json) -> Outcome:
        now_ms, request = step["timeMs"], step["request"]
        match step["op"]:
            case "advance":
                return self.coordinator.advance(now_ms)
            case "reload":
                self.coordinator.reload(now_ms=now_ms)
                return Outcome()
            case "runTasks":
                return self.coordinator.run_tasks(now_ms)
            case "metadataUpdate":
                image, name = self.coordinator.image, request["topic"]
                if request["kind"] == "delete":
                    image = image.without_topic(name)
                else:
                    image = image.with_topic(Topic(name, request["topicId"], request["partitions"]))
                self.coordinator.update_metadata(image, [name], now_ms=now_ms)
                return Outcome()
            case "endTransactionMarker":
                producer = Producer(request["producerId"], request["producerEpoch"])
                is_commit = request["result"] == "COMMIT"
                offset = self.coordinator.end_transaction(producer, committed=is_commit, now_ms=now_ms)
                assert offset == request["offset"]
                return Outcome()
        if step["op"] in NOT_ASKED:
            self.coordinator.now_ms = max(self.coordinator.now_ms, now_ms)
            return Outcome()
        operation = OPERATIONS.get(step["op"])
        if operation is None:
            raise UnknownOperation("the judge does not know it")
        return self.coordinator.handle(
            operation.name,
            operation.request(request),
            now_ms=now_ms,
            api_version=step["apiVersion"] if step.get("apiVersion") is not None else -1,
            request_id=step["i"],
            new_uuid=self._generated_uuid(step),
        )

    def _generated_uuid(self, step: Json) -> str:
        """The UUID which Kafka made in this step: the end of an id that was not there before."""
        if step["op"] != "classicJoin":
            return ""
        group_id = step["request"]["groupId"]
        before, after = _member_ids(self.expected.get(group_id)), _member_ids(step["stateChanges"].get(group_id))
        for member_id in sorted(after - before):
            return member_id[-UUID_CHARACTERS:]
        for later in self.steps[step["i"] :]:
            for completed in later["completed"]:
                if completed["step"] == step["i"]:
                    return str(completed["response"]["memberId"])[-UUID_CHARACTERS:]
        named = MEMBER_IN_ERROR.match((step["error"] or {}).get("message") or "")
        return "" if named is None else named[1]


def _member_ids(dump: Json | None) -> set[str]:
    group = (dump or {}).get("group") or {}
    return {*group.get("members", {}), *group.get("pendingJoinMembers", [])}


def canonical(node: Any, name: str = "") -> Any:
    """JSON with the lists whose order is that of a hash map in one order. Protocols keep theirs: it is a preference."""
    if isinstance(node, dict):
        return {key: canonical(value, key) for key, value in node.items()}
    if isinstance(node, list):
        items = [canonical(item) for item in node]
        return items if name == "protocols" else sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
    return node


def _answer_differs(step: Json, outcome: Outcome) -> str | None:
    if step["op"] in NOT_ASKED:
        return None
    error = None if outcome.error is None else (int(outcome.error.code), outcome.error.code.name, outcome.error.message)
    kafkas = None if step["error"] is None else (step["error"]["code"], step["error"]["name"], step["error"]["message"])
    if error != kafkas:
        return f"error {error}, Kafka's {kafkas}"
    mine = None if step["op"] in UNANSWERED else json_of(outcome.response)
    if isinstance(mine, dict):
        mine = {APART_FROM_THE_ANSWER.get(name, name): value for name, value in mine.items()}
        if mine.get("_initializeShareState"):
            # the traces have the start offset of the first topic id
            starts = mine["_initializeShareState"].pop("startOffsets")
            mine["_initializeShareState"]["startOffset"] = starts[min(starts)]
        if "acceptableRecoveryLagLegacy" in (step["response"] or {}):
            # the name that version 0's field has since version 1 came with another one
            mine["acceptableRecoveryLagLegacy"] = mine.pop("acceptableRecoveryLag")
        creatable = (step["response"] or {}).get("_creatableTopics")
        if creatable and isinstance(creatable[0], str):  # a trace may tell their names only
            mine["_creatableTopics"] = [topic["name"] for topic in mine["_creatableTopics"]]
    if step["op"] in TOPIC_IDS_FROM_VERSION and mine is not None:
        left_out = "name" if step["apiVersion"] >= TOPIC_IDS_FROM_VERSION[step["op"]] else "topicId"
        for topic in mine["topics"]:
            del topic[left_out]
    if canonical(mine) != canonical(step["response"]):
        return f"response {mine}, Kafka's {step['response']}"
    return None


def _completed_differ(step: Json, outcome: Outcome) -> str | None:
    mine = canonical([{"step": done.request_id, "response": json_of(done.response)} for done in outcome.completed])
    kafkas = canonical([{"step": done["step"], "response": done["response"]} for done in step["completed"]])
    return None if mine == kafkas else f"completed {mine}, Kafka's {kafkas}"


def _fired_differ(step: Json, outcome: Outcome) -> str | None:
    mine = [[fired.key, fired.at_ms, fired.first_record] for fired in outcome.fired]
    kafkas = [[fired["key"], fired["atMs"], fired["firstRecord"]] for fired in step.get("fired") or []]
    if step.get("timerTie"):
        mine, kafkas = sorted(fired[:2] for fired in mine), sorted(fired[:2] for fired in kafkas)
    return None if mine == kafkas else f"fired {mine}, Kafka's {kafkas}"


def _tasks_differ(step: Json, outcome: Outcome) -> str | None:
    mine, kafkas = list(outcome.tasks), step.get("tasks") or []
    return None if mine == kafkas else f"tasks {mine}, Kafka's {kafkas}"


def _records_differ(step: Json, outcome: Outcome) -> str | None:
    """Kinds in order, and the records of each run of one kind, by group; offsets as Kafka's."""
    my_offsets = [entry.offset for entry in outcome.records]
    if my_offsets != [record["offset"] for record in step["records"]]:
        kafkas = [(record["typeName"], record["keyJson"], record["valueJson"]) for record in step["records"]]
        return f"records {[_mine(entry) for entry in outcome.records]}, Kafka's {kafkas}"
    mine = _runs(in_one_order([_mine(entry) for entry in outcome.records]))
    theirs = _runs(in_one_order([_kafkas(record) for record in step["records"]]))
    return None if mine == theirs else f"records {mine}, Kafka's {theirs}"


UNORDERED_RECORDS = {
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
    RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    RecordType.SHARE_GROUP_STATE_PARTITION_METADATA,
}
"""Records whose values hold lists in the order of hash maps, some of which began with the order of a request."""


class Record(NamedTuple):
    """A record as it is compared."""

    group_id: str
    record_type: int
    key: str
    value: str | None
    producer: tuple[int, int]


def _mine(entry: AppendedRecord) -> Record:
    key, value = encode_record(entry.record)
    fields = entry.record.key
    group_id = fields.group if hasattr(fields, "group") else fields.group_id
    producer = (entry.producer.producer_id, entry.producer.producer_epoch)
    return Record(group_id, entry.record.record_type, key.hex(), _value_text(entry.record.record_type, value), producer)


def _kafkas(record: Json) -> Record:
    group_id = record["keyJson"].get("group", record["keyJson"].get("groupId"))
    producer = (record.get("producerId", -1), record.get("producerEpoch", -1))
    value = None if record["value"] is None else bytes.fromhex(record["value"])
    return Record(group_id, record["type"], record["key"], _value_text(record["type"], value), producer)


def _value_text(record_type: int, value: bytes | None) -> str | None:
    """The bytes of a value; where lists may be in any order, its size and its sorted JSON."""
    if value is None or record_type not in UNORDERED_RECORDS:
        return None if value is None else value.hex()
    version, message, struct = decode_value(TOPIC, record_type, value)
    return f"{len(value)} {json.dumps(canonical(to_json(struct, message, version)), sort_keys=True)}"


FENCED = (
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    RecordType.CONSUMER_GROUP_MEMBER_METADATA,
)
"""Tombstones of a member of a consumer group, in their order."""


def in_one_order(records: list[Record]) -> list[Record]:
    """The tombstones of members which go together, by member: Kafka has the members in a set, in whatever order."""
    ordered: list[Record] = []
    leaving: list[list[Record]] = []
    place = 0
    while place < len(records):
        several = records[place : place + len(FENCED)]
        if tuple(record.record_type for record in several) == FENCED and all(one.value is None for one in several):
            leaving.append(several)
            place += len(FENCED)
            continue
        ordered += [record for tombstones in sorted(leaving) for record in tombstones]
        leaving = []
        ordered.append(records[place])
        place += 1
    return ordered + [record for tombstones in sorted(leaving) for record in tombstones]


def _runs(records: Iterable[Record]) -> dict[str, list[list[Record]]]:
    """Group id -> runs of one kind, each sorted."""
    runs: dict[str, list[list[Record]]] = defaultdict(list)
    for record in records:
        so_far = runs[record.group_id]
        if so_far and so_far[-1][0].record_type == record.record_type:
            so_far[-1].append(record)
        else:
            so_far.append([record])
    return {
        group_id: [sorted(run, key=lambda record: (record.key, record.value or "")) for run in of_group]
        for group_id, of_group in runs.items()
    }
