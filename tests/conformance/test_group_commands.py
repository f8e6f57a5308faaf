"""The judge of the live coordinator passes what Kafka's own did (test_traces), and can say no."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.bytes.codec import make
from coordinator_core.bytes.kafka_versions import KafkaVersion
from coordinator_core.live.coordinator.group_module import GroupModule
from coordinator_core.live.coordinator.modules import MODULES
from coordinator_core.live.coordinator.operation import Context, Result
from coordinator_core.live.coordinator.records import CoordinatorRecord
from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets.share import SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE
from tests.conformance.families import group_commands
from tests.conformance.families.cases import Json, read_cases

TRACES = Path(__file__).parent.parent / "data" / "traces"


def trace(name: str) -> Path:
    return TRACES / f"group_{name}.jsonl.gz"


@pytest.mark.parametrize("name", ["migration", "share"])
def test_a_release_is_followed_by_its_own_rules(name: str) -> None:
    """What a 4.4 coordinator did is right as 4.4 (see test_traces), and not as 4.3."""
    path = TRACES.parent / "kafka-4.4" / "traces" / f"group_{name}.jsonl.gz"
    assert any(group_commands.judge(case, version=KafkaVersion(4, 3)).failure for case in read_cases(path))


def test_a_case_with_an_operation_nobody_serves_is_no_pass() -> None:
    """Without the module of offsets, cases with commits are not judged."""
    without_offsets = tuple(module for module in MODULES if module.name != "offsets")
    report = group_commands.judge_all(trace("offsets"), without_offsets)
    assert report.passed == 0
    assert report.not_judged + len(report.failures) == report.cases


def with_command(name: str, change: Callable[[Result], Result]) -> tuple[GroupModule, ...]:
    """The modules, with the result of one command changed."""
    modules = []
    for module in MODULES:
        commands = dict(module.commands)
        if name in commands:
            original = commands[name]

            def changed(context: Context, request: Any, original: Any = original) -> Result:
                return change(original(context, request))

            commands[name] = changed
        modules.append(replace(module, commands=commands))
    return tuple(modules)


@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("commit_offset", lambda result: replace(result, records=result.records[1:])),
        ("commit_offset", lambda result: replace(result, response=None)),
        ("classic_join", lambda result: replace(result, records=result.records * 2)),
    ],
)
def test_the_judge_sees_a_wrong_command(command: str, change: Callable[[Result], Result]) -> None:
    """A record too few, a record too many, an answer which is not given."""
    modules = with_command(command, change)
    assert any(group_commands.judge(case, modules).failure for case in read_cases(trace("offsets")))


def with_targets(change: Callable[[list[Any]], list[Any]]) -> Callable[[Result], Result]:
    """A result with the topics of all target assignments of share members changed."""

    def changed(record: CoordinatorRecord) -> CoordinatorRecord:
        if record.record_type != RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER or record.value is None:
            return record
        topics = change(list(record.value.topic_partitions))
        return replace(record, value=make(SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE, topic_partitions=topics))

    return lambda result: replace(result, records=tuple(map(changed, result.records)))


def test_topics_of_a_target_may_come_in_any_order_but_have_to_be_there() -> None:
    """Their order is that of a hash map; the judge sees a topic too few all the same."""
    swapped = with_command("share_group_heartbeat", with_targets(lambda topics: topics[::-1]))
    assert group_commands.judge_all(trace("share"), swapped).failures == []
    fewer = with_command("share_group_heartbeat", with_targets(lambda topics: topics[1:]))
    assert any(group_commands.judge(case, fewer).failure for case in read_cases(trace("share")))


def first_case(name: str, wanted: Callable[[Json], bool]) -> tuple[Json, int]:
    """The first case with such a step which passes up to it, and the place of the step."""
    for case in read_cases(trace(name)):
        judged = group_commands.judge(case).steps
        for number, step in enumerate(case["steps"][:judged]):
            if wanted(step):
                return case, number
    raise AssertionError(f"no such step in {name}")


def answered_heartbeat(step: Json) -> bool:
    return step["op"] == "classicHeartbeat" and bool(step["response"])


SPOILERS: dict[str, tuple[Callable[[Json], bool], Callable[[Json], None]]] = {
    "error": (lambda step: step["error"] is not None, lambda step: step["error"].update(code=99)),
    "response": (answered_heartbeat, lambda step: step["response"].update(errorCode=5)),
    "completed": (lambda step: bool(step["completed"]), lambda step: step["completed"].clear()),
    "fired": (lambda step: bool(step.get("fired")), lambda step: step["fired"].pop()),
    "tasks": (lambda step: step["op"] == "classicJoin", lambda step: step.update(tasks=["x"])),
    "record": (lambda step: bool(step["records"]), lambda step: step["records"][0].update(key="0002000161")),
    "offset": (lambda step: bool(step["records"]), lambda step: step["records"][0].update(offset=0)),
    "state": (lambda step: bool(step["stateChanges"]), lambda step: step["stateChanges"].clear()),
}


@pytest.mark.parametrize("name", SPOILERS)
def test_the_judge_sees_what_is_spoilt(name: str) -> None:
    """Whatever is changed in what Kafka gave, the case fails at that step."""
    wanted, spoil = SPOILERS[name]
    case, number = first_case("classic", wanted)
    spoilt = copy.deepcopy(case)
    spoil(spoilt["steps"][number])
    verdict = group_commands.judge(spoilt)
    assert verdict.failure is not None
    assert verdict.steps == number


def test_the_order_of_a_members_tombstones_is_judged_and_that_of_members_is_not() -> None:
    """Members which leave together are a set of Kafka's; each goes from the leaves up."""
    a, b = [[group_commands.Record("g", kind, name, None, (-1, -1)) for kind in (8, 7, 5)] for name in "ab"]
    epoch = group_commands.Record("g", 3, "g", "epoch", (-1, -1))
    in_order = group_commands.in_one_order([*a, *b, epoch])
    assert group_commands.in_one_order([*b, *a, epoch]) == in_order
    assert group_commands.in_one_order([*b, epoch, *a]) == [*b, epoch, *a]
    assert group_commands.in_one_order([*b, *a[::-1], epoch]) == [*b, *a[::-1], epoch]
