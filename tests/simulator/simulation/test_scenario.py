"""Scenario files: what is read, and what is said of a wrong one."""

from dataclasses import fields

import pytest

from simulator.simulation.errors import ScenarioError
from simulator.simulation.scenario import GROUP_KEYS, ClusterSpec, FaultSpec, GroupSpec, TopicSpec
from simulator.simulation.scenario_file import parse_scenario, readers_of
from simulator.simulation.scenario_place import Place

HEAD = 'name = "x"\nstart = 2026-01-05T00:00:00Z\nduration = "1h"\n'
TOPIC = '[[topic]]\nname = "t"\n'
CREATE = '[[fault]]\nkind = "create_topic"\nat = "1m"\ntopic = "t"\n'
GROUP = '[[group]]\nname = "g"\ntopics = ["t"]\n'
STREAMS = GROUP + 'protocol = "streams"\n'


def test_a_scenario_is_read_with_kafka_s_defaults() -> None:
    """Times become epoch milliseconds, durations milliseconds, settings those of the coordinator."""
    scenario = parse_scenario(
        HEAD + '[cluster]\nlatency = ["2ms", "9ms"]\n[cluster.settings]\n"group.max.size" = 7\n' + TOPIC + GROUP, "f"
    )
    assert (scenario.start_ms, scenario.end_ms) == (1_767_571_200_000, 1_767_574_800_000)
    assert scenario.cluster.latency_ms == (2, 9)
    assert scenario.cluster.settings.group_max_size == 7
    (group,) = scenario.groups
    assert (group.session_timeout_ms, group.heartbeat_interval_ms, group.max_poll_interval_ms) == (
        45_000,
        3000,
        300_000,
    )


def test_a_table_of_many_groups_names_each() -> None:
    """`count` groups are `name-0` and so on."""
    scenario = parse_scenario(HEAD + TOPIC + GROUP + "count = 3\n", "f")
    assert scenario.groups[0].group_ids() == ("g-0", "g-1", "g-2")


WRONG = (
    ("no TOML", "name = ", r"f\.toml is not valid TOML"),
    ("unknown key", HEAD + "durations = 1\n", r"f\.toml: durations: is not known here; known are: name, start"),
    ("nothing", "", r"f\.toml: name: is missing: add it"),
    ("duration", HEAD.replace('"1h"', '"1 hour"'), r"f\.toml: duration: must be a duration, as"),
    ("local time", HEAD.replace("00Z", "00"), r"f\.toml: start: must be a time with an offset"),
    ("unknown topic", HEAD + GROUP, r"f\.toml: group\[0\]\.topics: names 't', which no \[\[topic\]\] makes"),
    ("internal topic", HEAD + TOPIC.replace("t", "__t", 3), r"topic"),
    (
        "member topics of no topic",
        HEAD + TOPIC + GROUP + 'member_topics = [["u"]]\n',
        r"f\.toml: group\[0\]\.member_topics\[0\]: names 'u', which is not among topics: add it there",
    ),
    (
        "member topics, not lists",
        HEAD + TOPIC + GROUP + 'member_topics = ["t"]\n',
        r"f\.toml: group\[0\]\.member_topics: must be a list of lists, as",
    ),
    (
        "more lists than members",
        HEAD + TOPIC + GROUP + 'member_topics = [["t"], ["t"]]\n',
        r"f\.toml: group\[0\]\.member_topics: has more lists than the group has members \(1\)",
    ),
    (
        "a topic of no member",
        HEAD + TOPIC + TOPIC.replace('"t"', '"u"') + GROUP.replace('["t"]', '["t", "u"]') + 'member_topics = [["t"]]\n',
        r"f\.toml: group\[0\]\.member_topics: leaves out 'u' of topics",
    ),
    (
        "a subscription to no topic",
        HEAD + TOPIC + GROUP + '[[fault]]\nkind = "subscribe"\nat = "1m"\ngroup = "g"\ntopics = ["u"]\n',
        r"f\.toml: fault\[0\]\.topics: names 'u', which no \[\[topic\]\] makes: add it",
    ),
    (
        "a topic made twice",
        HEAD + TOPIC + 2 * CREATE,
        r"f\.toml: fault\[1\]\.topic: topic 't' exists at that time: put a delete_topic before",
    ),
    (
        "a topic deleted again and again",
        HEAD + TOPIC + CREATE.replace("create", "delete") + 'every = "1m"\n',
        r"f\.toml: fault\[0\]\.topic: topic 't' does not exist at that time: put a create_topic before",
    ),
    (
        "a fault of a topic that is not there yet",
        HEAD + TOPIC + CREATE + '[[fault]]\nkind = "producer_stall"\nat = "30s"\ntopic = "t"\nduration = "1m"\n',
        r"f\.toml: fault\[1\]\.topic: topic 't' does not exist at that time",
    ),
    (
        "a partition that the topic lost when it was made again",
        HEAD
        + TOPIC
        + "partitions = 4\n"
        + CREATE.replace("create", "delete")
        + CREATE
        + 'partitions = 2\n[[fault]]\nkind = "poison"\nat = "2m"\ntopic = "t"\npartition = 3\noffset = 1\n',
        r"f\.toml: fault\[2\]\.partition: topic 't' has partitions 0 to 1 at that time",
    ),
    (
        "a topic that grows to what it has",
        HEAD + TOPIC + 2 * '[[fault]]\nkind = "add_partitions"\nat = "1m"\ntopic = "t"\npartitions = 3\n',
        r"f\.toml: fault\[1\]\.partitions: must be above what the topic has at that time \(3\)",
    ),
    (
        "the deletion of a topic that is read in transactions",
        HEAD + TOPIC + GROUP + 'commits = "transactional"\n' + CREATE.replace("create", "delete"),
        r"f\.toml: fault\[0\]\.topic: is read by 'g', which commits in transactions",
    ),
    (
        "more racks than members",
        HEAD + TOPIC + GROUP + 'racks = ["a", "b"]\n',
        r"f\.toml: group\[0\]\.racks: has more than the group has members \(1\): the last does nothing",
    ),
    ("a rack without a name", HEAD + TOPIC + GROUP + 'racks = [""]\n', r"racks\[0\]: must be a text that is not empty"),
    (
        "more racks than brokers",
        HEAD + '[cluster]\nbrokers = 1\nracks = ["a", "b"]\n',
        r"f\.toml: cluster\.racks: has more racks than there are brokers \(1\)",
    ),
    (
        "poll intervals of more members than there are",
        HEAD + TOPIC + GROUP + 'member_max_poll_interval = ["1m", "2m"]\n',
        r"f\.toml: group\[0\]\.member_max_poll_interval: has more than the group has members",
    ),
    (
        "poll intervals twice",
        HEAD + TOPIC + GROUP + 'max_poll_interval = "1m"\nmember_max_poll_interval = ["1m"]\n',
        r"f\.toml: group\[0\]\.member_max_poll_interval: says that of each member: leave out max_poll_interval",
    ),
    (
        "a poll interval that is no duration",
        HEAD + TOPIC + GROUP + "member_max_poll_interval = [60]\n",
        r"f\.toml: group\[0\]\.member_max_poll_interval\[0\]: must be a duration",
    ),
    (
        "no time for requests",
        HEAD + TOPIC + GROUP + 'request_timeout = "0s"\n',
        r"f\.toml: group\[0\]\.request_timeout: must be longer than nothing",
    ),
    (
        "static threads before 4.4",
        HEAD + TOPIC + STREAMS + "static = true\n",
        r"f\.toml: group\[0\]\.static: needs kafka_version 4\.4 in a streams group: brokers of 4\.3 refuse",
    ),
    (
        "an application id that is no topic",
        HEAD + TOPIC + STREAMS.replace('"g"', '"g h"'),
        r"f\.toml: group\[0\]\.name: must be letters, digits, '\.', '_' and '-' in a streams group",
    ),
    (
        "more threads than members",
        HEAD + TOPIC + STREAMS + "threads = 2\n",
        r"f\.toml: group\[0\]\.threads: is above the members of the group \(1\)",
    ),
    (
        "an internal topic that is there",
        HEAD + TOPIC + TOPIC.replace('"t"', '"g-counts-changelog"') + STREAMS,
        r"f\.toml: group\[0\]\.name: makes 'g-counts-changelog' an internal topic, and a \[\[topic\]\] has that name",
    ),
    (
        "an application without its topic",
        HEAD + TOPIC + STREAMS + CREATE,
        r"f\.toml: group\[0\]\.topics: names 't', which fault\[0\] \(create_topic\) takes away for a time",
    ),
    (
        "tags that are no tables",
        HEAD + TOPIC + STREAMS + 'client_tags = ["a"]\n',
        r"client_tags: must be a list of tables",
    ),
    (
        "a tag without a text",
        HEAD + TOPIC + STREAMS + "client_tags = [{ zone = 1 }]\n",
        r"f\.toml: group\[0\]\.client_tags\[0\]\.'zone': must be a text that is not empty",
    ),
    (
        "a tag that is too long",
        HEAD + TOPIC + STREAMS + f'client_tags = [{{ zone = "{31 * "a"}" }}]\n',
        r"f\.toml: group\[0\]\.client_tags\[0\]\.'zone': must be 30 characters at most",
    ),
    (
        "too many tags",
        HEAD + TOPIC + STREAMS + "client_tags = [{ " + ", ".join(f'{key} = "x"' for key in "abcdef") + " }]\n",
        r"f\.toml: group\[0\]\.client_tags\[0\]: has 6 tags: Kafka Streams takes 5 at most",
    ),
    (
        "tags of more members than there are",
        HEAD + TOPIC + STREAMS + 'client_tags = [{ zone = "a" }, { zone = "b" }]\n',
        r"f\.toml: group\[0\]\.client_tags: has more than the group has members",
    ),
    (
        "a source topic that grows",
        HEAD + TOPIC + STREAMS + '[[fault]]\nkind = "add_partitions"\nat = "1m"\ntopic = "t"\npartitions = 3\n',
        r"f\.toml: group\[0\]\.topics: names 't', which fault\[0\] \(add_partitions\) gives more partitions than",
    ),
    (
        "too many standby tasks",
        HEAD + TOPIC + STREAMS + "standby_replicas = 3\n",
        r"f\.toml: group\[0\]\.standby_replicas: must be a whole number from 0 to 2",
    ),
    (
        "an application that subscribes to other topics",
        HEAD + TOPIC + STREAMS + '[[fault]]\nkind = "subscribe"\nat = "1m"\ngroup = "g"\ntopics = ["t"]\n',
        r"f\.toml: fault\[0\]\.group: must be no streams group: its topology says what 'g' reads",
    ),
    (
        "a config out of range",
        HEAD
        + TOPIC
        + GROUP
        + 'protocol = "share"\n[[fault]]\nkind = "alter_config"\nat = "1m"\ngroup = "g"\n'
        + 'config = "share.delivery.count.limit"\nvalue = 1\n',
        r"f\.toml: fault\[0\]\.value: must be a whole number from 2 to 25: brokers refuse 1",
    ),
    (
        "share offsets of another group",
        HEAD + TOPIC + GROUP + '[[fault]]\nkind = "delete_share_offsets"\nat = "1m"\ngroup = "g"\ntopic = "t"\n',
        r"f\.toml: fault\[0\]\.group: must be a share group: delete_share_offsets is of those, and 'g' is none",
    ),
    (
        "assignors twice over",
        HEAD + TOPIC + GROUP + 'assignors = ["range"]\nmember_assignors = [["range"]]\n',
        r"f\.toml: group\[0\]\.member_assignors: says the assignors of each member: leave out assignors",
    ),
    (
        "torn transactions",
        HEAD + TOPIC + "batch_records = 4\ntransaction_records = 6\n",
        r"f\.toml: topic\[0\]\.transaction_records: must be a multiple of batch_records \(4\)",
    ),
    (
        "aborted without transactions",
        HEAD + TOPIC + "abort_every = 4\n",
        r"f\.toml: topic\[0\]\.abort_every: does nothing without transaction_records",
    ),
    ("topic twice", HEAD + TOPIC + TOPIC, r"f\.toml: topic: two topics have one name"),
    ("group twice", HEAD + TOPIC + GROUP + GROUP, r"f\.toml: group\[1\]\.name: is taken"),
    ("members", HEAD + TOPIC + GROUP + "members = 0\n", r"group\[0\]\.members: must be a whole number from 1 to"),
    ("protocol", HEAD + TOPIC + GROUP + 'protocol = "new"\n', r"must be one of classic, consumer, share"),
    ("assignor", HEAD + TOPIC + GROUP + 'assignors = ["uniform"]\n', r"assignors: must be among range, roundrobin"),
    ("session", HEAD + TOPIC + GROUP + 'session_timeout = "5s"\n', r"session_timeout: the brokers take 6000 to"),
    ("heartbeat", HEAD + TOPIC + GROUP + 'heartbeat_interval = "1m"\n', r"heartbeat_interval: must be below"),
    ("poison", HEAD + TOPIC + GROUP + 'on_poison = "reject"\n', r"on_poison: must be one of skip, stuck in a classic"),
    (
        "share commits",
        HEAD + TOPIC + GROUP + 'protocol = "share"\ncommits = "transactional"\n',
        r"commits: does nothing in a share group, which commits no offsets: leave it out",
    ),
    ("setting", HEAD + '[cluster.settings]\n"group.max" = 1\n', r"cluster\.settings: no coordinator setting is called"),
    (
        "setting without quotes",
        HEAD + "[cluster.settings]\ngroup.max.size = 1\n",
        r"put the names of settings in quotes",
    ),
    (
        "unknown release",
        HEAD + '[cluster]\nkafka_version = "5.0"\n',
        r"cluster\.kafka_version: no Kafka version '5\.0' is known: use one of 4\.0",
    ),
    ("no release", HEAD + "[cluster]\nkafka_version = 4.4\n", r"must be a release in quotes"),
    ("latency", HEAD + '[cluster]\nlatency = ["5ms", "1ms"]\n', r"cluster\.latency: the first duration must not"),
    ("fault key", HEAD + '[[fault]]\nkind = "crash"\nat = "1m"\n', r"fault\[0\]\.group: is missing: crash needs it"),
    ("fault kind", HEAD + '[[fault]]\nkind = "flood"\nat = "1m"\n', r"fault\[0\]\.kind: must be one of crash"),
    (
        "fault group",
        HEAD + '[[fault]]\nkind = "crash"\nat = "1m"\ngroup = "h"\n',
        r"fault\[0\]\.group: there is no group 'h'",
    ),
    (
        "fault member",
        HEAD + TOPIC + GROUP + '[[fault]]\nkind = "crash"\nat = "1m"\ngroup = "g"\nmember = 1\n',
        r"fault\[0\]\.member: group 'g' has members 0 to 0",
    ),
    (
        "one broker",
        HEAD + '[cluster]\nbrokers = 1\n[[fault]]\nkind = "broker_failover"\nat = "1m"\nduration = "1m"\nbroker = 1\n',
        r"fault\[0\]\.broker: needs another broker",
    ),
    (
        "fewer partitions",
        HEAD + TOPIC + '[[fault]]\nkind = "add_partitions"\nat = "1m"\ntopic = "t"\npartitions = 1\n',
        r"fault\[0\]\.partitions: must be above",
    ),
)
"""(what is wrong, text, what the error says)."""

SHARE = GROUP + 'protocol = "share"\n'
CONSUMER = GROUP + 'protocol = "consumer"\n'
SETTINGS = "[cluster.settings]\n"
CRASH = '[[fault]]\nkind = "crash"\nat = "1m"\ngroup = "g"\n'

WITHOUT_EFFECT = (
    (
        GROUP,
        'client_tags = [{ zone = "a" }]',
        "client_tags: does nothing in a classic group, whose members have no tags",
    ),
    (STREAMS, 'member_topics = [["t"]]', "member_topics: does nothing in a streams group, whose members all run one"),
    (STREAMS, 'assignors = ["range"]', "assignors: does nothing in a streams group"),
    (GROUP, "stateful = true", "stateful: does nothing in a classic group, which has no state stores"),
    (GROUP, "repartition = true", "repartition: does nothing in a classic group, which has no topology"),
    (SHARE, "threads = 1", "threads: does nothing in a share group, each of whose members is a process"),
    (GROUP, "standby_replicas = 1", "standby_replicas: does nothing in a classic group, which has no tasks"),
    (GROUP, 'isolation_level = "read_committed"', "isolation_level: does nothing in a classic group"),
    (SHARE, 'member_assignors = [["range"]]', "member_assignors: does nothing in a share group"),
    (
        GROUP,
        'acquire_mode = "record_limit"',
        "acquire_mode: does nothing in a classic group",
    ),
    (SHARE, "rate = 10.0", "rate: does nothing in a share group, whose members handle"),
    (
        SHARE,
        'request_timeout = "30s"',
        "request_timeout: does nothing in a share group, whose members wait",
    ),
    (SHARE, 'session_timeout = "30s"', "session_timeout: does nothing in a share group, where brokers set it"),
    (SHARE, 'heartbeat_interval = "1s"', "heartbeat_interval: does nothing in a share group"),
    (SHARE, 'commits = "none"', "commits: does nothing in a share group, which commits no offsets"),
    (SHARE, 'commit_interval = "1s"', "commit_interval: does nothing in a share group"),
    (SHARE, "abort_every = 3", "abort_every: does nothing in a share group"),
    (SHARE, "static = true", "static: does nothing in a share group, whose members have no group.instance.id"),
    (SHARE, 'assignors = ["simple"]', "assignors: does nothing in a share group"),
    (SHARE, 'on_poison = "reject"', "on_poison: does nothing with acknowledge = 'implicit': .* set acknowledge to"),
    (SHARE, "release_every = 5", "release_every: does nothing with acknowledge = 'implicit'"),
    (SHARE + 'acknowledge = "explicit"\n', 'on_poison = "stuck"', "on_poison: must be one of skip, reject, release"),
    (GROUP, 'acknowledge = "explicit"', "acknowledge: does nothing in a classic group, which acknowledges no records"),
    (GROUP, "release_every = 5", "release_every: does nothing in a classic group.*set protocol to share"),
    (GROUP, "max_poll_records = 5", "max_poll_records: does nothing in a classic group"),
    (GROUP, 'fetch_max_wait = "1s"', "fetch_max_wait: does nothing in a classic group.*set protocol to share"),
    (CONSUMER, 'fetch_max_wait = "1s"', "fetch_max_wait: does nothing in a consumer group"),
    (SHARE, 'fetch_max_wait = "30s"', 'fetch_max_wait: must be below "30s".*request.timeout.ms'),
    (SHARE, "fetch_max_wait = 500", "fetch_max_wait: must be a duration, as"),
    (SHARE, 'fetch_max_wait = "-1ms"', "fetch_max_wait: must be a duration, as"),
    (SHARE, "renew_every = 5", "renew_every: does nothing with acknowledge = 'implicit'"),
    (
        GROUP,
        'dead_letter_topic = "dlq.t"',
        "dead_letter_topic: does nothing in a classic group, which gives no",
    ),
    (GROUP, "renew_acknowledge = false", "renew_acknowledge: does nothing in a classic group"),
    (GROUP, "max_record_locks = 500", "max_record_locks: does nothing in a classic group, which has no locks"),
    (
        GROUP,
        'record_lock_duration = "20s"',
        "record_lock_duration: does nothing in a classic group, which has no locks",
    ),
    (GROUP, "delivery_count_limit = 3", "delivery_count_limit: does nothing in a classic group, which counts no"),
    (GROUP, "abort_every = 5", "abort_every: does nothing with commits = 'auto': .* 'transactional'"),
    (GROUP + 'commits = "none"\n', 'commit_interval = "1s"', "commit_interval: does nothing with commits = 'none'"),
    (CONSUMER, 'session_timeout = "30s"', "session_timeout: does nothing in a consumer group"),
    (CONSUMER, 'heartbeat_interval = "1s"', "heartbeat_interval: does nothing in a consumer group"),
    (CONSUMER, "max_poll_records = 5", "max_poll_records: does nothing in a consumer group"),
    (CONSUMER, 'assignors = ["uniform", "range"]', r"assignors: takes one in a consumer group"),
    (CONSUMER, 'assignors = ["sticky"]', "assignors: must be among uniform, range"),
    (GROUP, 'assignors = ["range", "range"]', "assignors: has a name twice"),
    (
        GROUP + CRASH,
        "offset = 5",
        "offset: does nothing for crash, which takes at, duration, every, group, kind, member",
    ),
    (GROUP + CRASH, 'topic = "t"', "topic: does nothing for crash"),
    (GROUP + CRASH, "broker = 1", "broker: does nothing for crash"),
    (GROUP + CRASH.replace("1m", "2h"), "", r"fault\[0\]\.at: is not before the end of the scenario"),
    (
        GROUP,
        '[[fault]]\nkind = "poison"\nat = "1m"\ntopic = "t"\npartition = 1\noffset = 5',
        r"fault\[0\]\.partition: topic 't' has partitions 0 to 0",
    ),
)
"""(tables, one line more, what the error says)."""

OUT_OF_RANGE = (
    ('"group.share.max.size" = -3', "must be a whole number from 1 to 1000: brokers refuse -3"),
    ('"group.share.max.size" = 1001', "must be a whole number from 1 to 1000"),
    ('"group.consumer.heartbeat.interval.ms" = 0', "must be a whole number from 1 to"),
    ('"group.share.heartbeat.interval.ms" = 0', "must be a whole number from 1 to"),
    ('"group.share.heartbeat.interval.ms" = 45000', r"must be below group.share.session.timeout.ms \(45000\)"),
    ('"group.consumer.session.timeout.ms" = 5000', r"heartbeat.interval.ms\": must be below"),
    ('"group.min.session.timeout.ms" = 1800000', "must be below group.max.session.timeout.ms"),
    ('"group.max.size" = 0', "must be a whole number from 1 to"),
    ('"group.initial.rebalance.delay.ms" = -1', "must be a whole number from 0 to"),
    ('"offsets.retention.minutes" = 0', "must be a whole number from 1 to"),
    ('"group.consumer.assignors" = "sticky"', "must be among uniform, range"),
    ('"group.share.assignors" = "uniform"', "must be simple"),
    ('"group.consumer.migration.policy" = "maybe"', "must be one of disabled, downgrade, upgrade, bidirectional"),
)
"""(a line of `[cluster.settings]`, what the error says)."""

CLUSTER = (
    ("share_delivery_count_limit = 100", "must be a whole number from 2 to 25"),
    ("share_delivery_count_limit = 1", "must be a whole number from 2 to 25"),
    ('share_record_lock_duration = "10ms"', 'must be from "1s" to "1h"'),
    ('share_fetch_read = "1m"', 'share_fetch_read: must be below "30s"'),
    ("share_fetch_read = true", "share_fetch_read: must be a duration, as"),
    ('share_record_lock_duration = "2h"', 'must be from "1s" to "1h"'),
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((HEAD + TOPIC + tables + line + "\n", said) for tables, line, said in WITHOUT_EFFECT),
        *((HEAD + SETTINGS + line + "\n", said) for line, said in OUT_OF_RANGE),
        *((HEAD + "[cluster]\n" + line + "\n", said) for line, said in CLUSTER),
    ],
)
def test_a_key_without_effect_or_out_of_range_is_refused(text: str, said: str) -> None:
    """In one line, which names the key and says what it may be."""
    with pytest.raises(ScenarioError, match=said) as caught:
        parse_scenario(text, "f.toml")
    assert "\n" not in str(caught.value)


def test_there_are_sixty_wrong_files() -> None:
    """Each key that has effect only somewhere is in one of them."""
    assert len(WRONG) + len(WITHOUT_EFFECT) + len(OUT_OF_RANGE) + len(CLUSTER) >= 60
    assert GROUP_KEYS.keys() <= {line.partition(" = ")[0] for _, line, _ in WITHOUT_EFFECT}


@pytest.mark.parametrize(("text", "said"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_a_wrong_scenario_is_reported_with_its_place(text: str, said: str) -> None:
    """The error names the file, the key, and what to do."""
    with pytest.raises(ScenarioError, match=said):
        parse_scenario(text, "f.toml")


def test_every_field_can_be_set() -> None:
    """Each field of the dataclasses has its reader, which refuses a value of no TOML type."""
    for kind in (ClusterSpec, TopicSpec, GroupSpec, FaultSpec):
        assert readers_of(kind).keys() == {spec.name for spec in fields(kind)}
        for read in readers_of(kind).values():
            with pytest.raises(ScenarioError):
                read(object(), Place("key"))
