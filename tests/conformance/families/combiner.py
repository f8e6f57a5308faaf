"""Conformance of the batch combiner with Kafka's own PersisterStateBatchCombiner."""

import gzip
import json
from pathlib import Path

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.replay.share_state.combine import StateBatch, combine_state_batches


def run(path_to_jsonl_gz: str | Path, version: KafkaVersion = DEFAULT_VERSION) -> tuple[int, int, list[str]]:
    """Judge every case of the trace: (cases, passed, failures). A case passes with the same batches in the
    same order.
    """
    cases = 0
    failures: list[str] = []
    with gzip.open(path_to_jsonl_gz, "rt", encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            cases += 1
            combined = combine_state_batches(
                [StateBatch(*batch) for batch in case["current"]],
                [StateBatch(*batch) for batch in case["new"]],
                case["startOffset"],
                version,
            )
            expected = tuple(StateBatch(*batch) for batch in case["combined"])
            if combined != expected:
                failures.append(f"case {case['id']} ({case['kind']}): {combined} is not {expected}")
    return cases, cases - len(failures), failures
