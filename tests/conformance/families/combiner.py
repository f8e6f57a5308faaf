"""Conformance of the batch combiner with Kafka's own PersisterStateBatchCombiner."""

from functools import partial
from pathlib import Path

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.replay.share_state.combine import StateBatch, combine_state_batches
from tests.conformance.families.cases import Json, judge_cases


def run(path: str | Path, version: KafkaVersion = DEFAULT_VERSION) -> tuple[int, int, list[str]]:
    """Judge every case of the trace: (cases, passed, failures). A case passes with the same batches in the same
    order."""
    return judge_cases(path, partial(judge, version=version))


def judge(case: Json, version: KafkaVersion) -> str | None:
    """What is wrong in one case, or None."""
    current, new, expected = (tuple(StateBatch(*it) for it in case[name]) for name in ("current", "new", "combined"))
    combined = combine_state_batches(current, new, case["startOffset"], version)
    return None if combined == expected else f"{case['kind']}: {combined} is not {expected}"
