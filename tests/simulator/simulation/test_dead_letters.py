"""Dead letter topics of simulated share groups: what is copied, refused, tried again, and copied once more."""

import random
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from coordinator_core.bytes.kafka_versions import kafka_version
from coordinator_core.bytes.log.batch import Record
from coordinator_core.bytes.log.records import iter_records
from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.share_partition.state import DeadLetterCopy
from schemas.dead_letters import DeadLetterCause
from simulator.simulation.dead_letters import BATCH_RECORDS_MAX, EXHAUSTED, DeadLetterSender
from simulator.simulation.scenario_file import as_release, parse_scenario
from simulator.simulation.scenario_place import ScenarioError
from simulator.simulation.simulation import Simulation
from simulator.simulation.truth import MemorySink
from tests.simulator.simulation.simulations import HEAD, SCENARIOS, Run, run_file, run_text

HEAD_44 = {"brokers = 3": 'brokers = 2\nkafka_version = "4.4"', "rate = 40.0": "rate = 8.0\npoison_every = 10"}
TOPIC = """
[[topic]]
name = "dlq.t"
partitions = 3
dead_letters = true
"""
GROUP = """
[[group]]
name = "g"
protocol = "share"
topics = ["t"]
acknowledge = "explicit"
on_poison = "reject"
dead_letter_topic = "dlq.t"
"""

UNPOISONED = GROUP.replace('on_poison = "reject"\n', "")

Copy = tuple[str, str, int, int]
"""Group, topic, partition and offset of what was copied."""


def copies(run: Run, topic: str) -> Iterator[tuple[int, Record]]:
    """The records of a dead letter topic, each with its partition."""
    for log, _ in run.simulation.logs():
        if log.topic == topic:
            for batch in log.stored_batches():
                yield from ((log.partition, record) for record in iter_records(batch.data))


def headers(record: Record) -> dict[str, str]:
    """Headers by the end of their names."""
    return {name.removeprefix("__dlq.errors."): (value or b"").decode() for name, value in record.headers}


def offsets_of(run: Run, file: str, **facts: object) -> Counter[Copy]:
    """The offsets of truth lines, each as often as it is there."""
    return Counter(
        (line["group"], line["topic"], line["partition"], offset)
        for line in run.lines(file, **facts)
        for offset in range(line["first_offset"], line["last_offset"] + 1)
    )


@pytest.fixture(scope="module")
def run() -> Run:
    """The scenario of the project."""
    return run_file("dead-letters")


def test_copies_are_in_the_log_as_the_truth_has_them(run: Run) -> None:
    """Each copy has the six headers of Kafka and lies where the truth says, by the number of its source partition."""
    where = {
        (line["log"][0], line["log"][1] + index): (line, line["first_offset"] + index)
        for line in run.lines("dead_letters", error=None)
        for index in range(line["last_offset"] - line["first_offset"] + 1)
    }
    found = {(partition, record.offset): record for partition, record in copies(run, "dlq.orders")}
    assert found.keys() == where.keys()
    assert len(found) > 50
    for place, record in found.items():
        line, offset = where[place]
        assert headers(record) == {
            "topic": "orders",
            "partition": str(line["partition"]),
            "offset": str(offset),
            "group": line["group"],
            "delivery.count": str(line["delivery_count"]),
            "message": line["message"],
        }
        assert (record.key, record.value) == (None, None)
        assert place[0] == line["partition"] % 2
    assert list(copies(run, "dlq.closed")) == []


def test_what_is_given_up_is_archiving_until_its_copy_is_done(run: Run) -> None:
    """ARCHIVING, a copy, ARCHIVED, in this order, for each offset; at once ARCHIVED in the group without such a topic,
    and no copy in the group whose topic is not enabled."""
    writes: dict[Copy, list[tuple[str, int]]] = {}
    for line in run.lines("share_writes"):
        for first, last, state, _ in line["state_batches"]:
            if state.startswith("ARCHIV"):
                for offset in range(first, last + 1):
                    place = (line["group"], line["topic"], line["partition"], offset)
                    writes.setdefault(place, []).append((state, line["ts_ms"]))
    done = {place: [state for state, _ in times] for place, times in writes.items()}
    for place, states in done.items():
        assert states in (["ARCHIVED"] if place[0] == "without" else ["ARCHIVING", "ARCHIVED"], ["ARCHIVING"])
    assert {place[0] for place, states in done.items() if len(states) == 2} == {
        "rejects",
        "gives-up",
        "times-out",
        "refused",
    }
    copied_ms = {
        (line["group"], line["topic"], line["partition"], line["first_offset"]): line["ts_ms"]
        for line in run.lines("dead_letters")
    }
    assert all(times[0][1] <= copied_ms[place] <= times[1][1] for place, times in writes.items() if len(times) == 2)
    assert offsets_of(run, "archived") == Counter(dict.fromkeys(writes, 1))
    assert {line["error"] for line in run.lines("dead_letters", group="refused")} == {
        "DLQ is not enabled on configured DLQ topic for share group: refused, topic: dlq.closed."
    }


def test_messages_say_why(run: Run) -> None:
    """The broker's words for what was rejected and for what reached the limit, by group."""
    assert {(line["group"], line["message"]) for line in run.lines("dead_letters")} == {
        ("rejects", "Offset rejected by client."),
        ("refused", "Offset rejected by client."),
        ("gives-up", "Offset delivery count exceeded the threshold."),
        ("times-out", "Offset delivery count exceeded the threshold."),
    }


def test_a_group_may_read_dead_letters(run: Run) -> None:
    """What a consumer group committed of the dead letter topic is its end, but for the last moments."""
    (end,) = run.lines("end", group="repairs")
    committed = sum(it["offset"] for it in end["state"]["offsets"]["dlq.orders"].values())
    count = len(list(copies(run, "dlq.orders")))
    assert count - 20 <= committed <= count


def test_a_copy_whose_broker_fails_is_made_once_more() -> None:
    """The next leader finds ARCHIVING, cannot know how far the first came, and copies again; nothing else is."""
    text = TOPIC + GROUP
    before = run_text(text, minutes=3, head=HEAD_44)
    start_ms = before.simulation.scenario.start_ms
    struck = 0
    for line in before.lines("dead_letters"):
        if line["ts_ms"] - start_ms < 60_000 or struck == 2:
            continue
        broker = before.simulation.cluster.data_leader(TopicPartition(line["topic"], line["partition"]))
        fault = f'[[fault]]\nkind = "broker_failover"\nat = "{line["ts_ms"] - start_ms}ms"\nbroker = {broker}\n'
        run = run_text(text + fault + 'duration = "20s"\n', minutes=3, head=HEAD_44)
        again = {place: count for place, count in offsets_of(run, "dead_letters", error=None).items() if count > 1}
        if again:
            struck += 1
            assert set(again.values()) == {2}
            assert offsets_of(run, "archived").keys() >= again.keys()
            assert set(offsets_of(run, "archived").values()) == {1}
    assert struck == 2


def sender_of(simulation: Simulation) -> DeadLetterSender:
    """What a broker of a simulation that has not begun copies with."""
    leaders = simulation.share_leaders
    return DeadLetterSender(
        simulation.cluster, simulation.loop, simulation.topics, leaders.dead_letters, simulation.truth, random.Random(1)
    )


@pytest.mark.parametrize(("back_ms", "error"), [(4000, None), (None, EXHAUSTED)])
def test_a_leader_that_is_gone_is_tried_again(back_ms: int | None, error: str | None) -> None:
    """Later and later, five times at most; then the broker goes on without a copy."""
    sink = MemorySink()
    text = HEAD.format(minutes=5).replace("brokers = 3", 'brokers = 1\nkafka_version = "4.4"')
    simulation = Simulation(parse_scenario(text + TOPIC + UNPOISONED, "test.toml"), sink)
    loop, done_ms = simulation.loop, []
    start_ms = loop.now_ms
    letter = DeadLetterCopy(0, 5, 6, 1, DeadLetterCause.REJECTED)
    simulation.cluster.alive.clear()
    if back_ms is not None:
        loop.after(back_ms, simulation.cluster.alive.add, 1)
    sender_of(simulation).copy("dlq.t", "g", TopicPartition("t", 2), letter, lambda: done_ms.append(loop.now_ms))
    loop.run_until(start_ms + 300_000)
    (line,) = sink.lines["dead_letters"]
    assert (line["first_offset"], line["last_offset"], line["error"]) == (5, 6, error)
    assert (line["log"] is None) == (error is not None)
    # 1, 2, 4 and 8 s, each up to a fifth more or less
    expected_s = (1 + 2 + 4) if error is None else (1 + 2 + 4 + 8)
    assert len(done_ms) == 1
    assert 0.8 * expected_s * 1000 <= done_ms[0] - start_ms <= 1.2 * expected_s * 1000 + 50


def test_copies_that_wait_go_in_one_batch() -> None:
    """One request is on its way to a partition; what comes meanwhile is one batch, at most so many records."""
    text = HEAD.format(minutes=5).replace("brokers = 3", 'brokers = 1\nkafka_version = "4.4"')
    simulation = Simulation(parse_scenario(text + TOPIC + UNPOISONED, "test.toml"), MemorySink())
    sender, done = sender_of(simulation), list[int]()
    for number, count in enumerate((1, 2, 3, BATCH_RECORDS_MAX)):
        letter = DeadLetterCopy(number, 0, count - 1, 1, DeadLetterCause.REJECTED)
        sender.copy("dlq.t", "g", TopicPartition("t", 2), letter, partial(done.append, number))
    simulation.loop.run_until(simulation.loop.now_ms + 1000)
    log = next(it for it, _ in simulation.logs() if (it.topic, it.partition) == ("dlq.t", 2))
    assert [len(list(iter_records(batch.data))) for batch in log.stored_batches()] == [1, BATCH_RECORDS_MAX, 5]
    assert done == [0, 1, 2, 3]


def test_a_dead_letter_topic_may_go_and_come_again() -> None:
    """While it is not there copies are refused; then they begin at offset 0 of a topic with another id."""
    faults = "".join(
        f'[[fault]]\nkind = "{kind}"\nat = "{at}s"\ntopic = "dlq.t"\n'
        for kind, at in (("delete_topic", 60), ("create_topic", 120))
    )
    run = run_text(TOPIC + GROUP + faults, minutes=3, head=HEAD_44)
    start_ms = run.simulation.scenario.start_ms
    errors = [(line["error"], (line["ts_ms"] - start_ms) // 60_000) for line in run.lines("dead_letters")]
    missing = "DLQ topic does not exist and auto create is disabled on cluster for share group: g, topic: dlq.t."
    assert set(errors) == {(None, 0), (missing, 1), (None, 2)}
    offsets = [line["log"] for line in run.lines("dead_letters", error=None) if line["ts_ms"] - start_ms >= 120_000]
    assert len(list(copies(run, "dlq.t"))) == len(offsets_of(run, "dead_letters", error=None)) - sum(
        it == (None, 0) for it in errors
    )
    assert [0, 0] in offsets


CLOSED = TOPIC.replace("dead_letters = true\n", "")


@pytest.mark.parametrize(
    ("text", "release", "error"),
    [
        (TOPIC, "4.3", "topic[1].dead_letters: needs Kafka 4.4, and the brokers run 4.3"),
        (CLOSED + GROUP, "4.3", "group[0].dead_letter_topic: needs Kafka 4.4, and the brokers run 4.3"),
        (GROUP, "4.4", "group[0].dead_letter_topic: names 'dlq.t', which no [[topic]] makes: add it"),
        (TOPIC + GROUP.replace("dlq.t", "letters"), "4.4", "group[0].dead_letter_topic: must begin with 'dlq.'"),
        (TOPIC + GROUP.replace('["t"]', '["dlq.t"]'), "4.4", "group[0].dead_letter_topic: is among topics"),
        (TOPIC + "rate = 1.0\n" + GROUP, "4.4", "topic[1].rate: must be 0"),
        (CLOSED + "rate = 1.0\n" + GROUP, "4.4", "topic[1].rate: must be 0"),
        (TOPIC + GROUP.replace('"share"', '"classic"'), "4.4", "group[0].acknowledge: does nothing"),
    ],
)
def test_what_no_broker_would_copy_is_refused(text: str, release: str, error: str) -> None:
    """A scenario that needs a later Kafka, or another topic, is refused with the key and what to do."""
    head = HEAD.format(minutes=5).replace("brokers = 3", f'brokers = 3\nkafka_version = "{release}"')
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(head + text, "test.toml")
    assert str(refused.value).startswith(f"test.toml: {error}")


def test_a_scenario_with_dead_letters_does_not_run_as_an_older_release() -> None:
    """Also where the release is another one than that of the file."""
    scenario = parse_scenario((SCENARIOS / "dead-letters.toml").read_text(), "dead-letters.toml")
    assert as_release(scenario, kafka_version("4.4"), "dead-letters.toml") == scenario
    with pytest.raises(ScenarioError, match=r"needs Kafka 4\.4, and the brokers run 4\.2: .* or --kafka-version"):
        as_release(scenario, kafka_version("4.2"), "dead-letters.toml")
