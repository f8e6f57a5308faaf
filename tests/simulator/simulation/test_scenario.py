"""Scenario files: what is read, and what is said of a wrong one."""

import json
from dataclasses import fields
from typing import Any

import pytest

from simulator.simulation.scenario import GROUP_KEYS, ClusterSpec, FaultSpec, GroupSpec, TopicSpec
from simulator.simulation.scenario_file import parse_scenario, readers_of
from simulator.simulation.scenario_place import Place, ScenarioError

HEAD = 'name = "x"\nstart = 2026-01-05T00:00:00Z\nduration = "1h"\n'
TOPIC = '[[topic]]\nname = "t"\n'
U = TOPIC.replace('"t"', '"u"')
GROUP = '[[group]]\nname = "g"\ntopics = ["t"]\n'
STREAMS = GROUP + 'protocol = "streams"\n'


def fault(kind: str, at: str = "1m", **fields: Any) -> str:
    """The table of a fault."""
    return "[[fault]]\n" + "".join(
        f"{key} = {json.dumps(value)}\n" for key, value in {"kind": kind, "at": at, **fields}.items()
    )


CREATE, DELETE = fault("create_topic", topic="t"), fault("delete_topic", topic="t")


def test_a_scenario_is_read_with_kafka_s_defaults() -> None:
    """Times become epoch milliseconds, durations milliseconds, settings those of the coordinator."""
    scenario = parse_scenario(
        HEAD + '[cluster]\nlatency = ["2ms", "9ms"]\n[cluster.settings]\n"group.max.size" = 7\n' + TOPIC + GROUP, "f"
    )
    assert (scenario.start_ms, scenario.end_ms) == (1_767_571_200_000, 1_767_574_800_000)
    assert scenario.cluster.latency_ms == (2, 9)
    assert scenario.cluster.settings.group_max_size == 7
    (group,) = scenario.groups
    assert (group.session_ms, group.heartbeat_ms, group.max_poll_interval_ms) == (45_000, 3000, 300_000)


def test_a_table_of_many_groups_names_each() -> None:
    """`count` groups are `name-0` and so on."""
    scenario = parse_scenario(HEAD + TOPIC + GROUP + "count = 3\n", "f")
    assert scenario.groups[0].group_ids() == ("g-0", "g-1", "g-2")


WRONG = (
    ("name = ", "f.toml is not valid TOML"),
    (HEAD + "durations = 1\n", "f.toml: durations: is not known here; known are: name, start"),
    ("", "f.toml: name: is missing: add it"),
    (HEAD.replace('"1h"', '"1 hour"'), "f.toml: duration: must be a duration, as"),
    (HEAD.replace("00Z", "00"), "f.toml: start: must be a time with an offset"),
    (HEAD + GROUP, "f.toml: group[0].topics: names 't', which no [[topic]] makes"),
    (HEAD + TOPIC.replace("t", "__t", 3), "topic"),
    (HEAD + TOPIC + TOPIC, "f.toml: topic: two topics have one name"),
    (HEAD + TOPIC + GROUP + GROUP, "f.toml: group[1].name: is taken"),
    (
        HEAD + TOPIC + "batch_records = 4\ntransaction_records = 6\n",
        "transaction_records: must be a multiple of batch_records (4)",
    ),
    (HEAD + TOPIC + "abort_every = 4\n", "f.toml: topic[0].abort_every: does nothing without transaction_records"),
)
"""(text, what the error says)."""

OF_CLUSTER = (
    ('brokers = 1\nracks = ["a", "b"]', "cluster.racks: has more racks than there are brokers (1)"),
    ('kafka_version = "5.0"', "cluster.kafka_version: no Kafka version '5.0' is known: use one of 4.0"),
    ("kafka_version = 4.4", "must be a release in quotes"),
    ('latency = ["5ms", "1ms"]', "cluster.latency: the first duration must not"),
    ("share_delivery_count_limit = 100", "must be a whole number from 2 to 25"),
    ("share_delivery_count_limit = 1", "must be a whole number from 2 to 25"),
    ('share_record_lock_duration = "10ms"', 'must be from "1s" to "1h"'),
    ('share_fetch_read = "1m"', 'share_fetch_read: must be below "30s"'),
    ("share_fetch_read = true", "share_fetch_read: must be a duration, as"),
    ('share_record_lock_duration = "2h"', 'must be from "1s" to "1h"'),
)
"""(lines of `[cluster]`, what the error says)."""

OF_GROUP = (
    (GROUP, 'member_topics = [["u"]]', "member_topics[0]: names 'u', which is not among topics: add it there"),
    (GROUP, 'member_topics = ["t"]', "member_topics: must be a list of lists, as"),
    (GROUP, 'member_topics = [["t"], ["t"]]', "member_topics: has more than the group has members (1)"),
    (U + GROUP.replace('["t"]', '["t", "u"]'), 'member_topics = [["t"]]', "member_topics: leaves out 'u' of topics"),
    (GROUP, 'racks = ["a", "b"]', "racks: has more than the group has members (1): the last does nothing"),
    (GROUP, 'racks = [""]', "racks[0]: must be a text that is not empty"),
    (GROUP, 'member_max_poll_interval = ["1m", "2m"]', "member_max_poll_interval: has more than the group has members"),
    (
        GROUP + 'max_poll_interval = "1m"\n',
        'member_max_poll_interval = ["1m"]',
        "member_max_poll_interval: says that of each member: leave out max_poll_interval",
    ),
    (GROUP, "member_max_poll_interval = [60]", "member_max_poll_interval[0]: must be a duration"),
    (GROUP, 'request_timeout = "0s"', "request_timeout: must be longer than nothing"),
    (STREAMS, "static = true", "static: needs kafka_version 4.4 in a streams group: brokers of 4.3 refuse"),
    (STREAMS.replace('"g"', '"g h"'), "", "name: must be letters, digits, '.', '_' and '-' in a streams group"),
    (STREAMS, "threads = 2", "threads: is above the members of the group (1)"),
    (
        U.replace('"u"', '"g-counts-changelog"') + STREAMS,
        "",
        "name: makes 'g-counts-changelog' an internal topic, and a [[topic]] has that name",
    ),
    (STREAMS, 'client_tags = ["a"]', "client_tags: must be a list of tables"),
    (STREAMS, "client_tags = [{ zone = 1 }]", "client_tags[0].'zone': must be a text that is not empty"),
    (STREAMS, f'client_tags = [{{ zone = "{31 * "a"}" }}]', "client_tags[0].'zone': must be 30 characters at most"),
    (
        STREAMS,
        "client_tags = [{ " + ", ".join(f'{key} = "x"' for key in "abcdef") + " }]",
        "client_tags[0]: has 6 tags: Kafka Streams takes 5 at most",
    ),
    (STREAMS, 'client_tags = [{ zone = "a" }, { zone = "b" }]', "client_tags: has more than the group has members"),
    (STREAMS, "standby_replicas = 3", "standby_replicas: must be a whole number from 0 to 2"),
    (
        GROUP + 'assignors = ["range"]\n',
        'member_assignors = [["range"]]',
        "member_assignors: says the assignors of each member: leave out assignors",
    ),
    (GROUP, "members = 0", "members: must be a whole number from 1 to"),
    (GROUP, 'protocol = "new"', "protocol: must be one of classic, consumer, share"),
    (GROUP, 'assignors = ["uniform"]', "assignors: must be among range, roundrobin"),
    (GROUP, 'session_timeout = "5s"', "session_timeout: the brokers take 6000 to"),
    (GROUP, 'heartbeat_interval = "1m"', "heartbeat_interval: must be below"),
    (GROUP, 'on_poison = "reject"', "on_poison: must be one of skip, stuck in a classic"),
    (
        GROUP + 'protocol = "share"\n',
        "max_record_locks = 50",
        "max_record_locks: must be a whole number from 100 to 10000",
    ),
    (
        GROUP + 'protocol = "share"\n',
        'offset_reset = "by_duration:5m"',
        "offset_reset: must be one of earliest, latest, or in share",
    ),
    (
        GROUP + 'protocol = "consumer"\n',
        'offset_reset = "by_duration:PT5M"',
        "offset_reset: must be earliest or latest",
    ),
)
"""(tables, one line more of the group, what the error says of that key)."""

OF_FAULTS = (
    ("", fault("crash"), "fault[0].group: is missing: crash needs it"),
    ("", fault("flood"), "fault[0].kind: must be one of crash"),
    ("", fault("crash", group="h"), "fault[0].group: there is no group 'h'"),
    (GROUP, fault("crash", group="g", member=1), "fault[0].member: group 'g' has members 0 to 0"),
    ("", fault("add_partitions", topic="t", partitions=1), "fault[0].partitions: must be above"),
    (
        GROUP,
        fault("subscribe", group="g", topics=["u"]),
        "fault[0].topics: names 'u', which no [[topic]] makes: add it",
    ),
    ("", 2 * CREATE, "fault[1].topic: topic 't' exists at that time: put a delete_topic before"),
    ("", DELETE + 'every = "1m"\n', "fault[0].topic: topic 't' does not exist at that time: put a create_topic before"),
    (
        "",
        CREATE + fault("producer_stall", "30s", topic="t", duration="1m"),
        "fault[1].topic: topic 't' does not exist at that time",
    ),
    (
        "",
        "partitions = 4\n"
        + DELETE
        + CREATE
        + "partitions = 2\n"
        + fault("poison", "2m", topic="t", partition=3, offset=1),
        "fault[2].partition: topic 't' has partitions 0 to 1 at that time",
    ),
    (
        "",
        2 * fault("add_partitions", topic="t", partitions=3),
        "fault[1].partitions: must be above what the topic has at that time (3)",
    ),
    (GROUP + 'commits = "transactional"\n', DELETE, "fault[0].topic: is read by 'g', which commits in transactions"),
    (STREAMS, CREATE, "group[0].topics: names 't', which fault[0] (create_topic) takes away for a time"),
    (
        STREAMS,
        fault("add_partitions", topic="t", partitions=3),
        "group[0].topics: names 't', which fault[0] (add_partitions) gives more partitions than",
    ),
    (
        STREAMS,
        fault("subscribe", group="g", topics=["t"]),
        "fault[0].group: must be no streams group: its topology says what 'g' reads",
    ),
    (
        GROUP + 'protocol = "share"\n',
        fault("alter_config", group="g", config="share.delivery.count.limit", value=1),
        "fault[0].value: must be a whole number from 2 to 25",
    ),
    (
        GROUP + 'protocol = "share"\n',
        fault("alter_config", group="g", config="share.renew.acknowledge.enable", value="no"),
        "fault[0].value: must be true or false",
    ),
    (
        GROUP + 'protocol = "share"\n',
        fault("alter_config", group="g", config="share.heartbeat.interval.ms", value=45_000),
        "fault[0].value: must be below session_timeout (45000 ms): heartbeat_interval is 45000 ms",
    ),
    (
        GROUP,
        fault("delete_share_offsets", group="g", topic="t"),
        "fault[0].group: must be a share group: delete_share_offsets is of those, and 'g' is none",
    ),
    (
        "[cluster]\nbrokers = 1\n",
        fault("broker_failover", duration="1m", broker=1),
        "fault[0].broker: needs another broker",
    ),
)
"""(tables, faults, what the error says)."""

SHARE = GROUP + 'protocol = "share"\n'
CONSUMER = GROUP + 'protocol = "consumer"\n'
SETTINGS = "[cluster.settings]\n"
CRASH = fault("crash", group="g")

WITHOUT_EFFECT = (
    (
        GROUP,
        'client_tags = [{ zone = "a" }]',
        "client_tags: does nothing in a classic group, whose members have no tags",
    ),
    (STREAMS, 'member_topics = [["t"]]', "member_topics: does nothing in a streams group, whose members all run one"),
    (STREAMS, 'assignors = ["range"]', "assignors: does nothing in a streams group"),
    (SHARE, 'instance_ids = ["a"]', "instance_ids: does nothing in a share group, whose members have no"),
    (GROUP, 'instance_ids = ["a"]', "instance_ids: does nothing unless members are static: set static to true"),
    (GROUP, 'on_poison = "stuck"', "on_poison: does nothing: none of its topics has poison"),
    (GROUP, "stateful = true", "stateful: does nothing in a classic group, which has no state stores"),
    (GROUP, "repartition = true", "repartition: does nothing in a classic group, which has no topology"),
    (SHARE, "threads = 1", "threads: does nothing in a share group, each of whose members is a process"),
    (GROUP, "standby_replicas = 1", "standby_replicas: does nothing in a classic group, which has no tasks"),
    (GROUP, 'isolation_level = "read_committed"', "isolation_level: does nothing in a classic group"),
    (SHARE, 'member_assignors = [["range"]]', "member_assignors: does nothing in a share group"),
    (GROUP, 'acquire_mode = "record_limit"', "acquire_mode: does nothing in a classic group"),
    (SHARE, "rate = 10.0", "rate: does nothing in a share group, whose members handle"),
    (SHARE, 'request_timeout = "30s"', "request_timeout: does nothing in a share group, whose members wait"),
    (SHARE, 'heartbeat_interval = "45s"', "heartbeat_interval: must be below session_timeout (45000 ms)"),
    (CONSUMER, 'session_timeout = "4s"', "heartbeat_interval: must be below session_timeout (4000 ms)"),
    (GROUP, "fetch_min_bytes = 2", "fetch_min_bytes: does nothing in a classic group"),
    (CONSUMER, "fetch_max_bytes = 2", "fetch_max_bytes: does nothing in a consumer group"),
    (SHARE, "fetch_max_bytes = 60_000_000", "fetch_max_bytes: must be a whole number from 1 to 57671680"),
    (
        SHARE,
        'commits = "transactional"',
        "commits: does nothing in a share group, which commits no offsets: leave it out",
    ),
    (SHARE, 'commits = "none"', "commits: does nothing in a share group, which commits no offsets"),
    (SHARE, 'commit_interval = "1s"', "commit_interval: does nothing in a share group"),
    (SHARE, "abort_every = 3", "abort_every: does nothing in a share group"),
    (SHARE, "static = true", "static: does nothing in a share group, whose members have no group.instance.id"),
    (SHARE, 'assignors = ["simple"]', "assignors: does nothing in a share group"),
    (SHARE, 'on_poison = "reject"', "on_poison: does nothing with acknowledge = 'implicit': ... set acknowledge to"),
    (SHARE, "release_every = 5", "release_every: does nothing with acknowledge = 'implicit'"),
    (SHARE + 'acknowledge = "explicit"\n', 'on_poison = "stuck"', "on_poison: must be one of skip, reject, release"),
    (GROUP, 'acknowledge = "explicit"', "acknowledge: does nothing in a classic group, which acknowledges no records"),
    (GROUP, "release_every = 5", "release_every: does nothing in a classic group ... set protocol to share"),
    (GROUP, "max_poll_records = 5", "max_poll_records: does nothing in a classic group"),
    (GROUP, 'fetch_max_wait = "1s"', "fetch_max_wait: does nothing in a classic group ... set protocol to share"),
    (CONSUMER, 'fetch_max_wait = "1s"', "fetch_max_wait: does nothing in a consumer group"),
    (SHARE, 'fetch_max_wait = "30s"', 'fetch_max_wait: must be below "30s" ... request.timeout.ms'),
    (SHARE, "fetch_max_wait = 500", "fetch_max_wait: must be a duration, as"),
    (SHARE, 'fetch_max_wait = "-1ms"', "fetch_max_wait: must be a duration, as"),
    (SHARE, "renew_every = 5", "renew_every: does nothing with acknowledge = 'implicit'"),
    (GROUP, 'dead_letter_topic = "dlq.t"', "dead_letter_topic: does nothing in a classic group, which gives no"),
    (GROUP, "renew_acknowledge = false", "renew_acknowledge: does nothing in a classic group"),
    (GROUP, "max_record_locks = 500", "max_record_locks: does nothing in a classic group, which has no locks"),
    (
        GROUP,
        'record_lock_duration = "20s"',
        "record_lock_duration: does nothing in a classic group, which has no locks",
    ),
    (GROUP, "delivery_count_limit = 3", "delivery_count_limit: does nothing in a classic group, which counts no"),
    (GROUP, "abort_every = 5", "abort_every: does nothing with commits = 'auto': ... 'transactional'"),
    (GROUP + 'commits = "none"\n', 'commit_interval = "1s"', "commit_interval: does nothing with commits = 'none'"),
    (CONSUMER, "max_poll_records = 5", "max_poll_records: does nothing in a consumer group"),
    (CONSUMER, 'assignors = ["uniform", "range"]', "assignors: takes one in a consumer group"),
    (CONSUMER, 'assignors = ["sticky"]', "assignors: must be among uniform, range"),
    (GROUP, 'assignors = ["range", "range"]', "assignors: has a name twice"),
    (
        GROUP + CRASH,
        "offset = 5",
        "offset: does nothing for crash, which takes at, duration, every, group, kind, member",
    ),
    (GROUP + CRASH, 'topic = "t"', "topic: does nothing for crash"),
    (GROUP + CRASH, "broker = 1", "broker: does nothing for crash"),
    (GROUP + CRASH.replace("1m", "2h"), "", "fault[0].at: is not before the end of the scenario"),
    (GROUP, fault("poison", topic="t", partition=1, offset=5), "fault[0].partition: topic 't' has partitions 0 to 0"),
)
"""(tables, one line more, what the error says: two parts with ` ... ` between them)."""

OUT_OF_RANGE = (
    ('"group.max" = 1', "cluster.settings: no coordinator setting is called"),
    ("group.max.size = 1", "put the names of settings in quotes"),
    ('"group.share.max.size" = -3', "must be a whole number from 1 to 1000: brokers refuse -3"),
    ('"group.share.max.size" = 1001', "must be a whole number from 1 to 1000"),
    ('"group.consumer.heartbeat.interval.ms" = 0', "must be a whole number from 1 to"),
    ('"group.share.heartbeat.interval.ms" = 0', "must be a whole number from 1 to"),
    ('"group.share.heartbeat.interval.ms" = 45000', "must be below group.share.session.timeout.ms (45000)"),
    ('"group.consumer.session.timeout.ms" = 5000', 'heartbeat.interval.ms": must be below'),
    ('"group.min.session.timeout.ms" = 1800000', "must be below group.max.session.timeout.ms"),
    ('"group.max.size" = 0', "must be a whole number from 1 to"),
    ('"group.initial.rebalance.delay.ms" = -1', "must be a whole number from 0 to"),
    ('"offsets.retention.minutes" = 0', "must be a whole number from 1 to"),
    ('"group.consumer.assignors" = "sticky"', "must be among uniform, range"),
    ('"group.share.assignors" = "uniform"', "must be simple"),
    ('"group.consumer.migration.policy" = "maybe"', "must be one of disabled, downgrade, upgrade, bidirectional"),
)
"""(a line of `[cluster.settings]`, what the error says)."""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *WRONG,
        *((HEAD + "[cluster]\n" + lines + "\n", said) for lines, said in OF_CLUSTER),
        *((HEAD + TOPIC + tables + line + "\n", f"f.toml: group[0].{said}") for tables, line, said in OF_GROUP),
        *((HEAD + tables + TOPIC + faults, f"f.toml: {said}") for tables, faults, said in OF_FAULTS),
        *((HEAD + TOPIC + tables + line + "\n", said) for tables, line, said in WITHOUT_EFFECT),
        *((HEAD + SETTINGS + line + "\n", said) for line, said in OUT_OF_RANGE),
    ],
)
def test_a_wrong_scenario_is_reported_with_its_place(text: str, said: str) -> None:
    """In one line, which names the file, the key, and what it may be."""
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "f.toml")
    assert all(part in str(caught.value) for part in said.split(" ... "))
    assert "\n" not in str(caught.value)


def test_every_key_of_a_group_without_effect_is_refused_somewhere() -> None:
    """Each key that has effect only somewhere is in one of the files."""
    assert GROUP_KEYS.keys() <= {line.partition(" = ")[0] for _, line, _ in WITHOUT_EFFECT}


def test_every_field_can_be_set() -> None:
    """Each field of the dataclasses has its reader, which refuses a value of no TOML type."""
    for kind in (ClusterSpec, TopicSpec, GroupSpec, FaultSpec):
        assert readers_of(kind).keys() == {spec.name for spec in fields(kind)}
        for read in readers_of(kind).values():
            with pytest.raises(ScenarioError):
                read(object(), Place("key"))
