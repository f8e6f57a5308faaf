"""The exchange of a simulation: every request and its answer, and the states that it leads through."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from schemas.error_codes import ErrorCode
from simulator.simulation.exchange import Watch
from simulator.simulation.scenario_file import parse_scenario
from tests.conftest import PROJECT_ROOT
from tests.simulator.simulation.simulations import HEAD, Run, run_file, run_text

GROUP = '[[group]]\nname = "g"\ntopics = ["t"]\nmembers = 2\n'
ALL = Watch()
OF_EXCHANGE = ("requests", "states")


def exchanged(run: Run, **facts: Any) -> list[dict[str, Any]]:
    """Requests of a run in the order in which they reached a broker."""
    return sorted(run.lines("requests", **facts), key=lambda line: (line["asked_ms"], line["number"]))


@pytest.mark.parametrize("name", ["slow-member", "share-poison", "exactly-once", "streams", "consumer-protocol"])
def test_watching_changes_nothing(name: str) -> None:
    """The logs and the rest of the truth are those of a run that nobody watches."""
    alone, watched = run_file(name, minutes=6), run_file(name, minutes=6, watch=ALL)
    assert watched.log_bytes() == alone.log_bytes()
    assert {file: lines for file, lines in watched.truth.items() if file not in OF_EXCHANGE} == alone.truth
    assert watched.lines("requests")
    assert watched.lines("states")


@pytest.mark.parametrize("name", ["slow-member", "share-poison", "consumer-protocol"])
def test_heartbeats_that_are_left_out_are_counted(name: str) -> None:
    """With them, the requests are those of a run that sends all; they are lines with a count."""
    skipping, sending = (run_file(name, minutes=6, skips_heartbeats=skips, watch=ALL) for skips in (True, False))
    assert any(line["count"] > 1 for line in skipping.lines("requests"))
    assert Counter(_each(skipping)) == Counter(_each(sending))
    assert skipping.lines("states") == sending.lines("states")


def _each(run: Run) -> Iterator[tuple[Any, ...]]:
    for line in run.lines("requests"):
        last_ms = line["asked_ms"] if line["last_ms"] is None else line["last_ms"]
        step_ms = (last_ms - line["asked_ms"]) // max(line["count"] - 1, 1) or 1
        for at_ms in range(line["asked_ms"], last_ms + 1, step_ms):
            yield at_ms, line["client_id"], line["api"], line["error"], str(line["request"])


def test_only_what_is_watched_is_recorded() -> None:
    """The groups and the time of the watch, a request by the time at which it reaches the broker."""
    text = HEAD.format(minutes=5) + GROUP + GROUP.replace('"g"', '"h"')
    scenario = parse_scenario(text, "test.toml")
    begin_ms, end_ms = scenario.start_ms + 60_000, scenario.start_ms + 120_000
    run = Run(scenario, watch=Watch(frozenset({"g"}), begin_ms, end_ms))
    assert {line["group"] for line in run.lines("requests")} == {"g"}
    times = [line["asked_ms"] for line in run.lines("requests")]
    assert begin_ms <= min(times) < begin_ms + 10_000
    assert end_ms - 10_000 < max(times) < end_ms
    assert all(line["last_ms"] is None or line["last_ms"] < end_ms for line in run.lines("requests"))


def test_a_classic_member_joins_in_two_steps() -> None:
    """KIP-394: MEMBER_ID_REQUIRED, then the join that waits for the initial delay, then SyncGroup."""
    run = run_text(GROUP.replace("2", "1"), minutes=1, watch=ALL)
    first, second = exchanged(run, api="JoinGroup")
    assert (first["request"]["memberId"], first["error"]) == ("", "MEMBER_ID_REQUIRED")
    assert first["response"]["errorCode"] == ErrorCode.MEMBER_ID_REQUIRED
    assert second["request"]["memberId"] == first["response"]["memberId"]
    assert (second["error"], second["waited_ms"]) == ("NONE", 3000)
    (sync,) = exchanged(run, api="SyncGroup")
    assert sync["request"]["generationId"] == second["response"]["generationId"] == 1
    states = [(line["from"], line["to"]) for line in run.lines("states", kind="group")]
    assert states == [
        ("NONE", "Empty"),
        ("Empty", "PreparingRebalance"),
        ("PreparingRebalance", "CompletingRebalance"),
        ("CompletingRebalance", "Stable"),
    ]
    assert [line["why"] for line in run.lines("states", kind="group")][2] == "timer join-g"
    assert [line["to"] for line in run.lines("states", kind="client")] == ["JOINING", "SYNCING", "STABLE"]


def test_a_request_that_nobody_answers_is_a_line() -> None:
    """Where its broker fails, with the error that the client makes of it; at the end, without any."""
    coordinator = exchanged(run_text(GROUP, minutes=1, watch=ALL), api="JoinGroup")[0]["broker"]
    fault = f'[[fault]]\nkind = "broker_failover"\nat = "30s"\nbroker = {coordinator}\nduration = "60s"\n'
    run = run_text(GROUP + fault, minutes=2, watch=ALL)
    lost = [line for line in run.lines("requests") if line["error"] == "REQUEST_TIMED_OUT"]
    assert lost
    assert all(line["response"] is None for line in lost)
    waiting = run_text(GROUP.replace("2", "1") + 'start_after = "59s"\n', minutes=1, watch=ALL)
    (last,) = [line for line in waiting.lines("requests") if line["error"] is None]
    assert (last["api"], last["response"], last["waited_ms"]) == ("JoinGroup", None, None)


def test_the_coordinator_is_looked_up_again_where_the_topic_is_new() -> None:
    """FindCoordinator answers COORDINATOR_NOT_AVAILABLE until `__consumer_offsets` is there; each try is a line."""
    run = run_text(GROUP, minutes=1, watch=ALL, head={"brokers = 3": "brokers = 3\nnew_cluster = true"})
    found = exchanged(run, api="FindCoordinator", client_id="g-0")
    assert next(line["error"] for line in found) == "COORDINATOR_NOT_AVAILABLE"
    assert found[-1]["error"] == "NONE"
    assert found[-1]["response"]["coordinators"][0]["key"] == "g"


def test_a_leader_asks_the_share_coordinator() -> None:
    """The persister's requests are lines of the broker: it reads the state of a share partition before the first
    fetch of it is answered, and writes what is acknowledged."""
    group = '[[group]]\nname = "g"\nprotocol = "share"\ntopics = ["t"]\n'
    run = run_text(group, minutes=1, watch=ALL)
    fetch = next(line for line in exchanged(run, api="ShareFetch") if line["response"]["responses"])
    reads = exchanged(run, api="ReadShareGroupState")
    assert {line["from_broker"] for line in reads} <= {1, 2, 3}
    assert min(line["ts_ms"] for line in reads) <= fetch["ts_ms"]
    topic = fetch["response"]["responses"][0]
    assert topic["partitions"][0]["acquiredRecords"][0]["deliveryCount"] == 1
    assert exchanged(run, api="WriteShareGroupState")


KAFKA_FIELDS: dict[str, list[str]] = json.loads((PROJECT_ROOT / "tests/data/request_fields.json").read_text())
"""Message -> the names of all its fields, in Kafka 4.3.1's definitions."""
OWN_FIELDS = {"topic", "acknowledgeError"}
"""ShareFetch names topics in place of their ids, and an error by its class."""


@pytest.mark.parametrize("name", ["slow-member", "exactly-once", "consumer-protocol", "streams", "share-poison"])
def test_messages_have_kafkas_names(name: str) -> None:
    """All fields of requests and answers are in Kafka's definitions of the messages, but for what the docs say."""
    for line in run_file(name, minutes=4, watch=ALL).lines("requests"):
        for half, message in (("Request", line["request"]), ("Response", line["response"] or {})):
            strange = set(_keys(message)) - set(KAFKA_FIELDS[line["api"] + half]) - OWN_FIELDS
            assert not strange, (line["api"], half, strange)


def _keys(message: Any) -> Iterator[str]:
    if isinstance(message, dict):
        yield from message
        for value in message.values():
            yield from _keys(value)
    elif isinstance(message, list):
        for item in message:
            yield from _keys(item)


def test_share_partitions_have_states() -> None:
    """On the broker that leads one, and at the share coordinator, whose state has the epochs that fence others."""
    group = '[[group]]\nname = "g"\nprotocol = "share"\ntopics = ["t"]\nmembers = 2\n'
    fault = '[[fault]]\nkind = "broker_failover"\nat = "60s"\nbroker = 1\nduration = "30s"\n'
    run = run_text(group + fault, minutes=2, watch=ALL)
    led: dict[str, list[str]] = {}
    for line in run.lines("states", kind="share partition"):
        states = led.setdefault(line["name"], ["NONE"])
        assert line["from"] == states[-1]
        states.append(line["to"])
    assert {tuple(states[:3]) for states in led.values()} == {("NONE", "INITIALIZING", "ACTIVE")}
    of_failed = {name: states for name, states in led.items() if name.endswith(" on broker-1")}
    assert of_failed
    assert all(states[3] == "NONE" for states in of_failed.values())
    assert any(line["why"] == "another broker leads" for line in run.lines("states", to="FENCED"))
    persisted = [(line["from"], line["to"]) for line in run.lines("states", kind="share state", name="t-0")]
    assert persisted[0] == ("NONE", "state epoch 2, leader epoch 0")
    reads = [line for line in run.lines("states", kind="share state") if line["from"] != "NONE"]
    assert {line["why"].partition(" ")[0] for line in reads} == {"ReadShareGroupState"}


def test_a_group_that_a_timer_deletes_is_gone() -> None:
    """Its last offset expires; the line says by which timer."""
    head = {
        "[[topic]]": '[cluster.settings]\n"offsets.retention.minutes" = 1\n'
        '"offsets.retention.check.interval.ms" = 20000\n\n[[topic]]'
    }
    text = GROUP + '[[fault]]\nkind = "stop"\nat = "30s"\ngroup = "g"\n'
    last = run_text(text, minutes=3, head=head, watch=ALL).lines("states", kind="group", name="g")[-1]
    assert (last["from"], last["to"], last["why"]) == ("Empty", "NONE", "timer expire-group-metadata")


def test_a_forgotten_acknowledgement_stops_the_application() -> None:
    """KafkaShareConsumer.poll refuses in explicit mode: the locks of all records of the last poll expire together, and
    the client leaves after its poll interval."""
    group = (
        '[[group]]\nname = "g"\nprotocol = "share"\ntopics = ["t"]\nacknowledge = "explicit"\non_poison = "forget"\n'
    )
    group += 'record_lock_duration = "10s"\nmax_poll_interval = "40s"\noffset_reset = "earliest"\n'
    run = run_text(
        group + '[[fault]]\nkind = "poison"\nat = "0s"\ntopic = "t"\npartition = 0\noffset = 200\n',
        minutes=2,
        watch=ALL,
    )
    *_, failed, stale = [line for line in run.lines("states", kind="client") if line["to"] in {"FAILED", "STALE"}]
    assert failed["why"].startswith("IllegalStateException: All records must be acknowledged")
    assert stale["ts_ms"] - failed["ts_ms"] == 40_000
    assert not [line for line in exchanged(run, api="ShareFetch") if line["asked_ms"] > failed["ts_ms"]]
    expired = run.lines("lock_timeouts")
    assert {line["partition"] for line in expired} == {0, 1, 2, 3}
    assert len({line["ts_ms"] for line in expired}) == 1
    (left,) = [line for line in exchanged(run, api="ShareGroupHeartbeat") if line["request"]["memberEpoch"] == -1]
    assert left["asked_ms"] >= stale["ts_ms"]


@pytest.mark.parametrize("protocol", ["consumer", "share"])
def test_heartbeats_name_topics_when_these_change(protocol: str) -> None:
    """The first heartbeat has the subscription, and the next one that has it is sent as it changes."""
    more = """[[topic]]
name = "u"
[[fault]]
kind = "subscribe"
at = "70s"
group = "g"
topics = ["u"]
"""
    text = HEAD.format(minutes=3) + f'[[group]]\nname = "g"\nprotocol = "{protocol}"\ntopics = ["t"]\n' + more
    run = Run(parse_scenario(text, "test.toml"), watch=ALL)
    said = [
        (line["asked_ms"] - run.simulation.scenario.start_ms, line["request"]["subscribedTopicNames"])
        for line in run.lines("requests")
        if "subscribedTopicNames" in line["request"]
    ]
    assert [names for _, names in said] == [["t"], ["u"]]
    assert said[1][0] // 1000 == 70
