"""The judges of replay pass what Kafka's own group coordinator did (test_traces), and can say no."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from coordinator_core.bytes.codec import decode_value, encode_value
from schemas.consumer_offsets import TOPIC, RecordType
from tests.conformance.families import group_replay, groups
from tests.conformance.families.cases import Json, read_cases

TRACES = Path(__file__).parent.parent / "data" / "traces"
LIVE = ["classic", "consumer", "share", "streams", "offsets", "migration", "mixed"]


def cases_of(name: str) -> list[Json]:
    return list(read_cases(TRACES / f"group_{name}.jsonl.gz"))


@pytest.fixture(scope="module")
def replay_cases() -> list[Json]:
    return cases_of("replay")


def test_nearly_all_dumps_are_judged() -> None:
    """Kafka's own bugs take few dumps out of the comparison."""
    judged = [(groups.judged_dumps(case), len(case["replay"])) for name in LIVE for case in cases_of(name)]
    assert sum(count for count, _ in judged) > 0.95 * sum(count for _, count in judged)


def number_plus_1(number: int) -> int:
    return number + 1


def nothing(_: object) -> tuple[()]:
    return ()


def other(_: object) -> str:
    return "planted"


PLANTED: list[tuple[RecordType, str, Callable[[Any], object]]] = [
    (RecordType.LEGACY_OFFSET_COMMIT, "offset", number_plus_1),
    (RecordType.OFFSET_COMMIT, "commit_timestamp", number_plus_1),
    (RecordType.GROUP_METADATA, "generation", number_plus_1),
    (RecordType.CONSUMER_GROUP_METADATA, "epoch", number_plus_1),
    (RecordType.CONSUMER_GROUP_MEMBER_METADATA, "client_id", other),
    (RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, "assignment_timestamp", number_plus_1),
    (RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, "topic_partitions", nothing),
    (RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, "previous_member_epoch", number_plus_1),
    (RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, "assigned_partitions", nothing),
    (RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION, "version", number_plus_1),
    (RecordType.SHARE_GROUP_METADATA, "metadata_hash", number_plus_1),
    (RecordType.SHARE_GROUP_MEMBER_METADATA, "client_host", other),
    (RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, "assignment_epoch", number_plus_1),
    (RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER, "topic_partitions", nothing),
    (RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, "member_epoch", number_plus_1),
    (RecordType.SHARE_GROUP_STATE_PARTITION_METADATA, "initialized_topics", nothing),
    (RecordType.STREAMS_GROUP_METADATA, "validated_topology_epoch", number_plus_1),
    (RecordType.STREAMS_GROUP_MEMBER_METADATA, "process_id", other),
    (RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, "assignment_epoch", number_plus_1),
    (RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER, "standby_tasks", nothing),
    (RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT, "active_tasks", nothing),
    (RecordType.STREAMS_GROUP_TOPOLOGY, "epoch", number_plus_1),
]


@pytest.mark.parametrize(("record_type", "field", "change"), PLANTED)
def test_judge_sees_a_planted_value(
    replay_cases: list[Json], record_type: RecordType, field: str, change: Callable[[Any], object]
) -> None:
    """Another value in one field of one record, and the judge names the entry."""
    planted_count = 0
    for case in replay_cases[:60]:
        for number, entry in enumerate(case["entries"]):
            if entry.get("type") != record_type or not entry["value"] or entry.get("exception"):
                continue
            value = decode_value(TOPIC, record_type, bytes.fromhex(entry["value"]))
            before = getattr(value.fields, field)
            if change(before) == before:
                continue
            planted = replace(value.fields, **{field: change(before)})
            changed = copy.copy(case)
            changed["entries"] = list(case["entries"])
            encoded = encode_value(TOPIC, record_type, value.version, planted)
            changed["entries"][number] = {**entry, "value": encoded.hex()}
            assert (group_replay.judge(changed) or "").startswith(f"entry {number}: group ")
            planted_count += 1
            break
    assert planted_count


def test_judge_sees_a_lost_exception() -> None:
    """A record which Kafka refuses while the case says that it takes it, and the other way round."""
    case = next(case for case in cases_of("replay") if case.get("endsInException"))
    taken = copy.deepcopy(case)
    taken["entries"][-1]["exception"] = None
    assert "refused with" in (group_replay.judge(taken) or "")
    refused = copy.deepcopy(case)
    refused["entries"][0]["exception"] = "java.lang.IllegalStateException"
    assert "refused with" in (group_replay.judge(refused) or "")


def test_judge_sees_another_final_state() -> None:
    """The final state is compared too."""
    case = next(case for case in cases_of("replay") if not case.get("endsInException"))
    case["finalState"]["never-there"] = {"group": {"type": "classic"}}
    assert "final state" in (group_replay.judge(case) or "")


@pytest.mark.parametrize("name", LIVE)
def test_judge_of_live_logs_sees_a_lost_record(name: str) -> None:
    """A tombstone for the last value of a log: the last dump differs, unless that value was taken back anyway."""
    tried = noticed = 0
    for case in cases_of(name)[:10]:
        if case["kafkaBugFromStep"] >= 0:
            continue
        records = [record for step in case["steps"] for record in step["records"] if record["value"]]
        if not records:
            continue
        tried += 1
        records[-1]["value"] = None
        noticed += groups.judge(case) is not None
    assert noticed > tried / 2 > 0


def test_judge_of_live_logs_sees_another_marker() -> None:
    """ABORT for COMMIT leaves other offsets behind."""
    noticed = 0
    for case in cases_of("offsets"):
        markers = [step["request"] for step in case["steps"] if step["op"] == "endTransactionMarker"]
        if not markers or case["kafkaBugFromStep"] >= 0:
            continue
        for marker in markers:
            marker["result"] = "ABORT" if marker["result"] == "COMMIT" else "COMMIT"
        noticed += groups.judge(case) is not None
    assert noticed > 10
