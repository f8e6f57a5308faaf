"""Conformance of the look-ups with Kafka's own partitionFor."""

from pathlib import Path

from coordinator_core.replay.java.hash_codes import string_hash_code
from coordinator_core.replay.lookup import SharePartitionKey, group_partition, share_partition_partition
from tests.conformance.families.cases import Json, judge_cases


def run(path: str | Path) -> tuple[int, int, list[str]]:
    """Judge every case of the trace: (cases, passed, failures)."""
    return judge_cases(path, judge)


def judge(case: Json) -> str | None:
    """What is wrong in one case, or None."""
    group_id = case["groupId"]
    if case["kind"] == "group":
        counts = {count: group_partition(group_id, int(count)) for count in case["partition"]}
        answer: Json = {"hashCode": string_hash_code(group_id), "partition": counts}
    else:
        key = SharePartitionKey(group_id, case["topicId"], case["partitionIndex"])
        text = key.as_coordinator_key()
        counts = {count: share_partition_partition(key, int(count)) for count in case["partition"]}
        answer = {"key": text, "hashCode": string_hash_code(text), "partition": counts}
    expected = {name: case[name] for name in answer}
    return None if answer == expected else f"{answer} is not {expected}"
