"""Conformance of the look-ups with Kafka's own partitionFor."""

import gzip
import json
from pathlib import Path

from coordinator_core.replay.java.hash_codes import string_hash_code
from coordinator_core.replay.lookup import (
    SharePartitionKey,
    group_partition,
    share_partition_partition,
)


def run(path_to_jsonl_gz: str | Path) -> tuple[int, int, list[str]]:
    """Judge every case of the trace: (cases, passed, failures)."""
    cases = 0
    failures: list[str] = []
    with gzip.open(path_to_jsonl_gz, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            case = json.loads(line)
            cases += 1
            group_id = case["groupId"]
            if case["kind"] == "group":
                answer = {
                    "hashCode": string_hash_code(group_id),
                    "partition": {count: group_partition(group_id, int(count)) for count in case["partition"]},
                }
                expected = {name: case[name] for name in answer}
            else:
                key = SharePartitionKey(group_id, case["topicId"], case["partitionIndex"])
                text = key.as_coordinator_key()
                answer = {
                    "key": text,
                    "hashCode": string_hash_code(text),
                    "partition": {count: share_partition_partition(key, int(count)) for count in case["partition"]},
                }
                expected = {name: case[name] for name in answer}
            if answer != expected:
                failures.append(f"line {number}: {answer} is not {expected}")
    return cases, cases - len(failures), failures
