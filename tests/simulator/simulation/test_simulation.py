"""Whole simulations: determinism, heartbeats which are left out, and what faults do."""

import pytest

from coordinator_core.live.runtime.machines import GroupMachine
from simulator.simulation.scenario import FAULT_KEYS
from simulator.simulation.scenario_file import parse_scenario
from tests.simulator.simulation.random_scenarios import STORIES, restless_story
from tests.simulator.simulation.simulations import SCENARIOS, Run, run_file, run_text

SHORT = (
    ("rolling-deploy", 12),
    ("bad-day", 22),
    ("consumer-protocol", 28),
    ("share-poison", 16),
    ("exactly-once", 8),
    ("racks", 4),
    ("slow-member", 6),
    ("topics-come-and-go", 8),
)
"""Scenario -> minutes of it."""

GROUP = '[[group]]\nname = "g"\ntopics = ["t"]\nmembers = 2\n'


@pytest.mark.parametrize(("name", "minutes"), SHORT)
def test_leaving_out_heartbeats_changes_nothing_but_the_time(name: str, minutes: int) -> None:
    """All bytes and the whole truth are the same as if every heartbeat had been sent."""
    skipping = run_file(name, minutes=minutes)
    sending = run_file(name, minutes=minutes, skips_heartbeats=False)
    assert skipping.log_bytes() == sending.log_bytes()
    assert skipping.truth == sending.truth
    assert skipping.summary.skipped_heartbeat_count > 0
    assert (
        skipping.summary.heartbeat_count + skipping.summary.skipped_heartbeat_count == sending.summary.heartbeat_count
    )


@pytest.mark.parametrize("seed", range(2 * STORIES))
def test_leaving_out_heartbeats_changes_nothing_in_restless_groups(seed: int) -> None:
    """So it is where members pause, crash, stop and subscribe while others rebalance."""
    skipping, sending = (Run(restless_story(seed), skips_heartbeats=skips) for skips in (True, False))
    assert skipping.log_bytes() == sending.log_bytes()
    assert skipping.truth == sending.truth


def test_a_member_that_does_not_sync_is_dropped_while_the_others_are_quiet() -> None:
    """The timer of the sync phase, which is the group's, ends its quiet: the member that stays learns of it with its
    next heartbeat."""
    paused = """
    [[topic]]
    name = "u"
    [[group]]
    name = "g"
    topics = ["t"]
    members = 2
    static = true
    session_timeout = "2m"
    max_poll_interval = "30s"
    [[fault]]
    kind = "pause"
    at = "1m"
    group = "g"
    member = 0
    duration = "100s"
    [[fault]]
    kind = "subscribe"
    at = "70s"
    group = "g"
    member = 1
    topics = ["u"]
    """
    runs = [run_text(paused, minutes=6, skips_heartbeats=skips) for skips in (True, False)]
    assert runs[0].log_bytes() == runs[1].log_bytes()
    for run in runs:
        assert run.causes("g")[3] == ["SYNC_EXPIRED"]
        third = run.lines("generations", group="g", generation=3)[0]
        assert [member["client_id"] for member in third["members"].values()] == ["g-1"]


def test_one_seed_gives_the_same_bytes_and_another_one_others() -> None:
    """A run is a function of the scenario and the seed."""
    first, again = run_file("share-poison", minutes=6), run_file("share-poison", minutes=6)
    other = run_file("share-poison", minutes=6, seed=10)
    assert first.log_bytes() == again.log_bytes()
    assert first.truth == again.truth
    assert first.log_bytes() != other.log_bytes()


def test_a_scenario_runs_as_a_release_of_kafka() -> None:
    """Transactional commits have topic ids since 4.4; a scenario that names no release runs as 4.3."""
    group = GROUP + 'commits = "transactional"\ncommit_interval = "1s"\n'
    runs = [
        run_text(group, minutes=2, head={"brokers = 3": f"brokers = 3\n{line}"})
        for line in ("", 'kafka_version = "4.3"', 'kafka_version = "4.4"')
    ]
    default, as_43, as_44 = (run.log_bytes() for run in runs)
    assert default == as_43 != as_44
    offsets = [_committed_ids(run) for run in runs[1:]]
    assert offsets[0] == {None}
    assert None not in offsets[1]


def _committed_ids(run: Run) -> set[str | None]:
    """Topic ids of what is committed, by the coordinators that are there at the end."""
    return {
        committed.topic_id
        for runtime in run.simulation.cluster.groups.runtimes.values()
        for coordinator in runtime.coordinators.values()
        if isinstance(coordinator.machine, GroupMachine)
        for committed in coordinator.machine.coordinator.shard.offsets.offsets.values()
    }


def test_one_more_group_changes_nothing_in_the_others() -> None:
    """Every actor has its own randomness: the log partitions of other groups have the same bytes."""
    alone = run_text(GROUP)
    both = run_text(GROUP + '[[group]]\nname = "another"\ntopics = ["t"]\nmembers = 3\n')
    partition = f"__consumer_offsets-{alone.simulation.cluster.partition_of('g')}"
    assert both.simulation.cluster.partition_of("another") != alone.simulation.cluster.partition_of("g")
    assert alone.log_bytes()[partition] == both.log_bytes()[partition]


def test_the_scenarios_of_the_project_cover_every_fault() -> None:
    """Between them they have each kind of fault, each protocol, and transactions."""
    scenarios = [parse_scenario(path.read_text(), path.name) for path in sorted(SCENARIOS.glob("*.toml"))]
    assert len(scenarios) >= 6
    assert {fault.kind for scenario in scenarios for fault in scenario.faults} == set(FAULT_KEYS)
    groups = [group for scenario in scenarios for group in scenario.groups]
    assert {group.protocol for group in groups} == {"classic", "consumer", "share", "streams"}
    assert {group.acknowledge for group in groups if group.protocol == "share"} == {"implicit", "explicit"}
    assert any(group.commits == "transactional" for group in groups)
    assert any(topic.retention_ms for scenario in scenarios for topic in scenario.topics)


def test_a_crashed_member_is_found_dead_by_its_session() -> None:
    """Its partitions are nobody's until the session ends; the cause names the session and the fault."""
    run = run_text(GROUP + '[[fault]]\nkind = "crash"\nat = "1m"\ngroup = "g"\nmember = 1\n')
    (crashed, *_) = run.lines("owners", client_id="g-1")
    assert crashed["ended_by"] == "CRASHED"
    last = run.lines("generations", group="g")[-1]
    assert [(cause["reason"], cause["client_id"], cause["fault"]) for cause in last["causes"]] == [
        ("SESSION_EXPIRED", "g-1", 0)
    ]
    assert 42_000 <= last["causes"][0]["at_ms"] - crashed["to_ms"] <= 45_010
    assert len(last["members"]) == 1


def test_a_member_that_does_not_poll_in_time_leaves_and_comes_back() -> None:
    """POLL_EXPIRED after max.poll.interval, MEMBER_JOINED once the poll is over; meanwhile it reads nothing."""
    run = run_text(
        GROUP.replace("members = 2", 'members = 2\nmax_poll_interval = "30s"')
        + '[[fault]]\nkind = "slow_poll"\nat = "1m"\nduration = "50s"\ngroup = "g"\nmember = 0\n'
    )
    assert run.causes("g")[1:] == [["MEMBER_JOINED"] * 2, ["POLL_EXPIRED"], ["MEMBER_JOINED"]]
    lost = run.lines("owners", client_id="g-0", ended_by="LOST")
    assert len(lost) == 2
    assert all(line["next_offset"] <= 640 for line in lost)


def test_causes_are_all_that_came_while_members_joined() -> None:
    """Who joins, leaves or expires in a join phase is a cause of its generation, too, each with its client; who only
    joins again is none."""
    faults = [
        '[[fault]]\nkind = "pause"\nat = "60s"\nduration = "20s"\ngroup = "g"\nmember = 0\n',
        '[[fault]]\nkind = "stop"\nat = "70s"\ngroup = "g"\nmember = 2\n',
        '[[fault]]\nkind = "stop"\nat = "75s"\nduration = "1s"\ngroup = "g"\nmember = 1\n',
    ]
    run = run_text(GROUP.replace("members = 2", "members = 3") + "".join(faults), minutes=2)
    causes = [
        [(cause["reason"], cause["client_id"]) for cause in line["causes"]]
        for line in run.lines("generations", group="g")
    ]
    assert causes[1] == [("MEMBER_JOINED", f"g-{index}") for index in range(3)]
    assert causes[2] == [("MEMBER_LEFT", "g-2"), ("MEMBER_LEFT", "g-1"), ("MEMBER_JOINED", "g-1")]


@pytest.mark.parametrize("protocol", ["classic", "consumer", "share", "streams"])
@pytest.mark.parametrize("kind", ["stop", "crash"])
def test_a_fault_may_strike_a_member_that_is_closing(protocol: str, kind: str) -> None:
    """A deployment stops it as something else does, or is interrupted by a crash; it goes on with the next member, and
    all are there in the end."""
    faults = [
        '[[fault]]\nkind = "rolling_deploy"\nat = "60s"\ngroup = "g"\nduration = "5s"\n',
        *(
            f'[[fault]]\nkind = "{kind}"\nat = "{60_000 + after_ms}ms"\ngroup = "g"\nmember = 0\nduration = "4s"\n'
            for after_ms in (1, 2, 3)
        ),
    ]
    group = GROUP.replace("members = 2", f'members = 2\nprotocol = "{protocol}"')
    run = run_text(group + "".join(faults), minutes=3)
    assert [line["client_id"] for line in run.lines("faults", fault="rolling_deploy")] == ["g-0", "g-1"]
    assert len(run.lines("generations", group="g")[-1]["members"]) == 2


def test_a_paused_member_is_a_zombie() -> None:
    """It still believes that it owns what the group gave to the other member when its session ended."""
    run = run_text(
        GROUP + '[[fault]]\nkind = "pause"\nat = "1m"\nduration = "90s"\ngroup = "g"\nmember = 0\n', minutes=4
    )
    zombie = run.lines("owners", client_id="g-0", ended_by="LOST")
    assert zombie
    overlaps = [
        other
        for line in zombie
        for other in run.lines("owners", client_id="g-1", topic="t", partition=line["partition"])
        if other["from_ms"] < line["to_ms"]
    ]
    assert overlaps


def test_a_static_member_that_comes_back_in_time_costs_no_rebalance() -> None:
    """The generation stays, and the record of the member's new id has its cause."""
    run = run_text(
        GROUP.replace("members = 2", "members = 2\nstatic = true")
        + '[[fault]]\nkind = "stop"\nat = "1m"\nduration = "20s"\ngroup = "g"\nmember = 0\n'
    )
    generations = [line["generation"] for line in run.lines("generations", group="g")]
    assert generations == [0, 1, 1]
    assert run.causes("g")[-1] == ["STATIC_MEMBER_BACK"]


def test_a_broker_that_dies_costs_no_rebalance_and_no_commit_that_was_answered() -> None:
    """Another broker leads with what the followers had: generations go on, commits rise, leader epochs too."""
    run = run_text(GROUP + '[[fault]]\nkind = "broker_failover"\nat = "90s"\nduration = "1m"\nbroker = 1\n')
    assert [line["generation"] for line in run.lines("generations", group="g")] == [0, 1]
    log = run.simulation.cluster.groups.logs[run.simulation.cluster.partition_of("g")]
    other_epochs = [log.leader_epoch for log in run.simulation.cluster.groups.logs]
    assert max(other_epochs) >= 2
    assert log.end_offset == max(entry[3] for line in run.lines("commits") for entry in line["offsets"]) + 1


def test_new_partitions_are_found_and_given_out() -> None:
    """The leader of a classic group rejoins once its metadata show them."""
    run = run_text(GROUP + '[[fault]]\nkind = "add_partitions"\nat = "1m"\ntopic = "t"\npartitions = 6\n')
    assert run.causes("g")[-1] == ["TOPIC_CHANGED"]
    members = run.lines("generations", group="g")[-1]["members"].values()
    assert sorted(n for member in members for _, numbers in member["assignment"] for n in numbers) == [*range(6)]


def test_a_poison_record_stops_a_partition_and_only_that() -> None:
    """A consumer which cannot pass it commits the same offset again and again."""
    run = run_text(
        GROUP.replace("members = 2", 'members = 1\non_poison = "stuck"')
        + '[[fault]]\nkind = "poison"\nat = "1m"\ntopic = "t"\npartition = 2\noffset = 1000\n'
    )
    committed = {partition: offset for _, partition, offset, _ in run.lines("commits")[-1]["offsets"]}
    assert committed[2] == 1000
    assert min(committed[partition] for partition in (0, 1, 3)) > 2500


SHARE = '[[group]]\nname = "s"\nprotocol = "share"\ntopics = ["t"]\nacknowledge = "explicit"\n'
POISON = '[[fault]]\nkind = "poison"\nat = "10s"\ntopic = "t"\npartition = 0\noffset = 600\n'


@pytest.mark.parametrize(
    ("on_poison", "why", "delivery_count"),
    [("reject", "REJECTED", 1), ("release", "DELIVERY_LIMIT", 5), ("time_out", "DELIVERY_LIMIT", 5)],
)
def test_a_poison_record_of_a_share_group_is_given_up(on_poison: str, why: str, delivery_count: int) -> None:
    """Rejected at once, or delivered as often as allowed; all its deliveries are recorded."""
    run = run_text(SHARE + f'on_poison = "{on_poison}"\n' + POISON)
    (archived,) = run.lines("archived", partition=0, first_offset=600)
    assert (archived["why"], archived["delivery_count"]) == (why, delivery_count)
    counts = [
        line["delivery_count"]
        for line in run.lines("deliveries", partition=0)
        if line["first_offset"] <= 600 <= line["last_offset"]
    ]
    assert counts == [*range(1, delivery_count + 1)]


def test_a_crashed_share_consumer_gives_up_what_it_had() -> None:
    """Its records are available at once, without any lock that ends: the other member gets them with its partitions."""
    run = run_text(
        SHARE + 'members = 2\npoll_interval = "5s"\n[[fault]]\nkind = "crash"\nat = "2m"\ngroup = "s"\nmember = 0\n',
        minutes=3,
    )
    again = [line for line in run.lines("deliveries", client_id="s-1") if line["delivery_count"] == 2]
    assert again
    assert all(line["ts_ms"] - run.simulation.scenario.start_ms < 175_000 for line in again)
    assert run.lines("lock_timeouts") == []


def test_aborted_transactions_leave_no_offset() -> None:
    """Of every third transaction nothing counts: the last committed offset is of a transaction that was committed."""
    run = run_text(GROUP.replace("members = 2", 'commits = "transactional"\nabort_every = 3'), minutes=2)
    outcomes = [line["outcome"] for line in run.lines("transactions")]
    assert outcomes[:6] == ["COMMITTED", "COMMITTED", "ABORTED"] * 2
    (end,) = run.lines("end", group="g")
    committed = {line["log"][1]: line for line in run.lines("transactions", outcome="COMMITTED")}
    assert committed
    assert "offsets" in end["state"]


def test_a_producer_that_comes_back_fences_the_one_before() -> None:
    """A crash between the commit of the offsets and the end of the transaction: the next incarnation aborts it."""
    faults = '[[fault]]\nkind = "crash"\nat = "61s"\nevery = "5050ms"\nduration = "2s"\ngroup = "g"\n'
    run = run_text(
        GROUP.replace("members = 2", 'static = true\ncommits = "transactional"\ncommit_interval = "1s"') + faults
    )
    epochs = [(line["producer_epoch"], line["outcome"]) for line in run.lines("transactions")]
    assert [epoch for epoch, _ in epochs] == sorted({epoch for epoch, _ in epochs})
    assert "ABORTED" in {outcome for _, outcome in epochs}


@pytest.mark.parametrize(
    ("protocol", "reset", "is_at_end"),
    [
        ("classic", "", True),
        ("consumer", "", True),
        ("share", "", True),
        ("streams", "", False),
        ("classic", 'offset_reset = "earliest"\n', False),
    ],
)
def test_where_a_group_without_offsets_begins(protocol: str, reset: str, is_at_end: bool) -> None:
    """As auto.offset.reset of the clients: at the end of the log by default, in streams groups at its start."""
    text = f'[[group]]\nname = "g"\nprotocol = "{protocol}"\ntopics = ["t"]\nstart_after = "60s"\n{reset}'
    run = run_text(text, minutes=2)
    lines = run.lines("deliveries" if protocol == "share" else "owners", topic="t", partition=0)
    first = min(line["first_offset"] for line in lines)
    assert first >= 590 if is_at_end else first == 0


@pytest.mark.parametrize(("reset", "lost"), [("earliest", range(500, 580)), ("latest", range(590, 700))])
def test_a_position_whose_data_was_deleted(reset: str, lost: range) -> None:
    """OFFSET_OUT_OF_RANGE: a slow consumer continues where auto.offset.reset says, not always at the log's start."""
    text = GROUP.replace("members = 2", f'rate = 4.0\noffset_reset = "{reset}"')
    fault = '[[fault]]\nkind = "delete_records"\nat = "60s"\ntopic = "t"\npartition = 0\noffset = 500\n'
    (line,) = run_text(text + fault, minutes=2).lines("owners", partition=0)
    assert line["next_offset"] in lost
