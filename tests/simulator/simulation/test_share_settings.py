"""What a scenario can say of a share group, each by its Kafka name, and what comes of it."""

from itertools import pairwise
from operator import itemgetter
from typing import Any

import pytest

from simulator.simulation.exchange import Watch
from simulator.simulation.scenario import ALTERABLE
from simulator.simulation.values import reset_duration_ms
from tests.simulator.simulation.simulations import Run, run_text

GROUP = """
[[group]]
name = "g"
protocol = "share"
topics = ["t"]
members = 1
poll_interval = "2s"
"""
LIMIT, SESSION = "share.delivery.count.limit", "SESSION_EXPIRED"
SLOW = GROUP + 'acknowledge = "explicit"\nrecord_lock_duration = "3s"\nrenew_every = 10\n'


def types_of(run: Run, offset_every: int) -> set[tuple[str, ...]]:
    """How the records which take two polls were acknowledged, in the order of time."""
    said: dict[tuple[int, int], list[str]] = {}
    for line in run.lines("acknowledgements"):
        for offset in range(line["first_offset"], line["last_offset"] + 1):
            if offset % offset_every == offset_every - 1 and line["error"] is None:
                said.setdefault((line["partition"], offset), []).extend(line["acknowledge_type"])
    return {tuple(types) for types in said.values()}


def acknowledged_after_ms(run: Run, acknowledge_type: str) -> set[int]:
    """How long after their delivery records were acknowledged so."""
    given = {
        (line["partition"], offset): line["ts_ms"]
        for line in run.lines("deliveries")
        for offset in range(line["first_offset"], line["last_offset"] + 1)
    }
    return {
        line["ts_ms"] - given[line["partition"], line["first_offset"]]
        for line in run.lines("acknowledgements", acknowledge_type=[acknowledge_type])
    }


@pytest.mark.parametrize(
    ("acknowledge", "types"),
    [("", {"ACCEPT"}), ('acknowledge = "explicit"\non_poison = "reject"\n', {"ACCEPT", "REJECT"})],
    ids=["implicit", "explicit"],
)
def test_implicit_acknowledgement_accepts_whatever_the_poll_before_gave(acknowledge: str, types: set[str]) -> None:
    """share.acknowledgement.mode: the next poll, 2 s later, tells it; only explicit members reject a poison record."""
    run = run_text(GROUP + acknowledge, minutes=1, head={"rate = 40.0": "rate = 40.0\npoison_every = 20"})
    said = {kind for line in run.lines("acknowledgements") for kind in line["acknowledge_type"]}
    assert said == types
    for kind in types:
        assert {round(after_ms, -3) for after_ms in acknowledged_after_ms(run, kind)} == {2000}


def test_a_renewed_lock_outlasts_the_duration() -> None:
    """RENEW: records acquired for two polls of 2 s under a lock of 3 s are accepted, and no lock runs out."""
    run = run_text(SLOW, minutes=2)
    assert ("RENEW", "ACCEPT") in types_of(run, 10)
    assert types_of(run, 10) <= {("RENEW", "ACCEPT"), ("RENEW",)}
    assert run.lines("lock_timeouts") == []


def test_a_broker_may_refuse_to_renew() -> None:
    """share.renew.acknowledge.enable: without it RENEW is refused, and the lock runs out."""
    run = run_text(SLOW + "renew_acknowledge = false\n", minutes=2)
    refused = [line for line in run.lines("acknowledgements") if "RENEW" in line["acknowledge_type"]]
    assert refused
    assert {line["error"] for line in refused} == {"InvalidRecordStateException"}
    assert run.lines("lock_timeouts")


@pytest.mark.parametrize("locks", [100, 300])
def test_no_more_records_are_in_flight_than_have_locks(locks: int) -> None:
    """share.partition.max.record.locks: what one fetch gives of a partition ends there."""
    head = {"rate = 40.0": "rate = 4000.0"}
    run = run_text(GROUP + f"max_record_locks = {locks}\n", minutes=1, head=head)
    free = run_text(GROUP, minutes=1, head=head)

    def most(of: Run) -> int:
        return max(int(line["last_offset"] - line["first_offset"] + 1) for line in of.lines("deliveries"))

    assert most(run) <= locks < most(free)


def test_a_group_begins_so_long_ago() -> None:
    """share.auto.offset.reset by_duration: of 60 s of records, a group that starts then begins 20 s before."""

    def first(reset: str) -> int:
        text = GROUP + f'start_after = "60s"\noffset_reset = "{reset}"\n'
        return min(int(line["first_offset"]) for line in run_text(text, minutes=2).lines("deliveries", partition=0))

    assert first("earliest") == 0
    assert 350 < first("by_duration:PT25S") < first("by_duration:PT10S") < first("latest")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("by_duration:PT5M", 300_000),
        ("by_duration:P1DT2H", 93_600_000),
        ("by_duration:PT1.5S", 1500),
        ("by_duration:P", None),
        ("by_duration:5m", None),
        ("earliest", None),
    ],
)
def test_durations_of_iso_8601(text: str, expected: int | None) -> None:
    """As Kafka reads share.auto.offset.reset."""
    assert reset_duration_ms(text) == expected


def test_a_broker_has_so_many_share_sessions() -> None:
    """group.share.max.share.sessions: a member without one gets nothing, until another one has left."""
    head = {"brokers = 3": "brokers = 1\nshare_sessions_max = 1"}
    text = (
        GROUP.replace("members = 1", 'members = 2\nstagger = "10s"')
        + """
[[fault]]
kind = "stop"
at = "60s"
group = "g"
member = 0
"""
    )
    run = run_text(text, minutes=2, head=head)
    stopped_ms = run.lines("faults")[0]["ts_ms"]
    served = {
        client: [line["ts_ms"] for line in run.lines("deliveries", client_id=client)] for client in ("g-0", "g-1")
    }
    assert served["g-0"] and max(served["g-0"]) < stopped_ms
    assert served["g-1"] and min(served["g-1"]) >= stopped_ms


def test_groups_have_their_own_limits() -> None:
    """share.delivery.count.limit and share.record.lock.duration.ms of one group bear on that group alone."""
    text = """
[[group]]
name = "{name}"
protocol = "share"
topics = ["t"]
acknowledge = "explicit"
on_poison = "{on_poison}"
{more}
"""
    patient = text.format(name="patient", on_poison="time_out", more='record_lock_duration = "10s"')
    strict = text.format(name="strict", on_poison="release", more="delivery_count_limit = 2")
    run = run_text(patient + strict, minutes=3, head={"rate = 40.0": "rate = 40.0\npoison_every = 100"})
    given_up = {line["group"]: line["delivery_count"] for line in run.lines("archived", why="DELIVERY_LIMIT")}
    assert given_up["strict"] == 2
    first = run.lines("lock_timeouts", group="patient")[0]
    delivered = [
        line["ts_ms"]
        for line in run.lines("deliveries", group="patient", partition=first["partition"])
        if line["first_offset"] <= first["first_offset"] <= line["last_offset"]
    ]
    assert 10_000 <= first["ts_ms"] - delivered[0] < 11_000


def test_an_explicit_member_polls_only_when_it_has_acknowledged_all() -> None:
    """KafkaShareConsumer.poll refuses while a record is open: a member that lets the lock of one expire commits the
    others, gets nothing meanwhile from any broker, and then acknowledges that record, too late."""
    text = GROUP + 'acknowledge = "explicit"\non_poison = "time_out"\nrecord_lock_duration = "10s"\n'
    run = run_text(text, minutes=3, head={"rate = 40.0": "rate = 40.0\npoison_every = 100"})
    open_since: dict[tuple[int, int], int] = {}
    late_count = 0
    # what a request acknowledges is written while it fetches
    lines = [(line["ts_ms"] - 1_000, line) for line in run.lines("acknowledgements")]
    lines += [(line["ts_ms"], line) for line in run.lines("deliveries")]
    for _, line in sorted(lines, key=itemgetter(0)):
        places = [(line["partition"], offset) for offset in range(line["first_offset"], line["last_offset"] + 1)]
        if "acknowledge_type" in line:
            late_count += line["error"] == "InvalidRecordStateException"
            for place in places:
                del open_since[place]
        else:  # of the same poll, which one broker may answer later than another
            assert all(line["ts_ms"] - at_ms < 1_000 for at_ms in open_since.values()), line
            open_since |= dict.fromkeys(places, line["ts_ms"])
    assert late_count > 10
    assert {line["delivery_count"] for line in run.lines("archived", why="DELIVERY_LIMIT")} == {5}


@pytest.mark.parametrize("protocol", ["share", "consumer"])
def test_a_group_has_its_own_session_and_heartbeats(protocol: str) -> None:
    """share.session.timeout.ms, share.heartbeat.interval.ms and those of consumer groups: a member that is paused for
    longer than its group's session is thrown out, while the brokers' session would have kept it."""
    group = f'[[group]]\nname = "g"\nprotocol = "{protocol}"\ntopics = ["t"]\n'
    fault = '[[fault]]\nkind = "pause"\nat = "60s"\ngroup = "g"\nduration = "30s"\n'
    own = 'session_timeout = "20s"\nheartbeat_interval = "2s"\n'
    short, usual = (run_text(group + more + fault, minutes=3, watch=Watch()) for more in (own, ""))
    ends = [[line["ts_ms"] for line in run.lines("states", kind="member", to="NONE")] for run in (short, usual)]
    (end_ms,) = ends[0]
    assert ends[1] == []
    beats = [line["asked_ms"] for line in short.lines("requests") if line["api"].endswith("GroupHeartbeat")]
    assert end_ms - max(beat for beat in beats if beat < end_ms) <= 20_000


ALTERED = """
[[fault]]
kind = "alter_config"
at = "62s"
group = "g"
config = "{config}"
value = {value}
[[fault]]
kind = "crash"
at = "120s"
group = "g"
member = 1
"""
VALUES = {
    "share.record.lock.duration.ms": 2000,
    "share.delivery.count.limit": 2,
    "share.partition.max.record.locks": 100,
    "share.renew.acknowledge.enable": "false",
    "share.auto.offset.reset": '"earliest"',
    "share.isolation.level": '"read_committed"',
    "share.session.timeout.ms": 20_000,
    "share.heartbeat.interval.ms": 2000,
}


def altered(config: str, **options: Any) -> Run:
    """A group of two, one config of which changes after a minute, and one member of which dies after two."""
    text = SLOW.replace("members = 1", "members = 2") + "release_every = 7\n"
    head = {"rate = 40.0": "rate = 40.0\ntransaction_records = 10\nabort_every = 3"}
    return run_text(text + ALTERED.format(config=config, value=VALUES[config]), minutes=4, head=head, **options)


@pytest.mark.parametrize("config", ALTERABLE)
def test_every_config_of_a_group_can_change(config: str) -> None:
    """An admin may set each: the metadata log has it, and heartbeats that are left out change neither log nor truth."""
    run, all_sent = altered(config), altered(config, skips_heartbeats=False)
    assert [line["config"] for line in run.lines("faults", fault="alter_config")] == [config]
    assert (run.log_bytes(), run.truth) == (all_sent.log_bytes(), all_sent.truth)
    assert run.summary.skipped_heartbeat_count > 0


@pytest.mark.parametrize(("config", "after_ms"), [("share.session.timeout.ms", 20_000), (LIMIT, 45_000)])
def test_a_member_expires_after_the_session_in_force(config: str, after_ms: int) -> None:
    """share.session.timeout.ms: of a member that sent a heartbeat since it changed, the session is the new one."""
    run = altered(config)
    (died,) = run.lines("faults", fault="crash")
    (expired,) = [line for line in run.lines("generations") if line["causes"][:1] and SESSION in str(line["causes"])]
    assert after_ms - 5000 <= expired["ts_ms"] - died["ts_ms"] <= after_ms


def test_members_take_the_heartbeat_interval_of_the_last_answer() -> None:
    """share.heartbeat.interval.ms: every 5 s at first, and every 2 s from the heartbeat after the change on."""
    run = altered("share.heartbeat.interval.ms", skips_heartbeats=False, watch=Watch())
    sent = run.lines("requests", api="ShareGroupHeartbeat", client_id="g-0", error="NONE")
    gaps = [later["asked_ms"] - earlier["asked_ms"] for earlier, later in pairwise(sent)]
    assert {5000, 2000} <= set(gaps) and gaps[-1] == 2000
    assert set(gaps[: gaps.index(2000)]) >= {5000} and 5000 not in gaps[gaps.index(2000) :]
