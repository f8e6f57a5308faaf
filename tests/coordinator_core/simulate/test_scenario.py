"""Scenario files: what is read, and what is said of a wrong one."""

import pytest

from coordinator_core.simulate.errors import ScenarioError
from coordinator_core.simulate.scenario import READERS, ClusterSpec, FaultSpec, GroupSpec, TopicSpec, parse_scenario

HEAD = 'name = "x"\nstart = 2026-01-05T00:00:00Z\nduration = "1h"\n'
TOPIC = '[[topic]]\nname = "t"\n'
GROUP = '[[group]]\nname = "g"\ntopics = ["t"]\n'


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
        r"commits: share groups commit no offsets",
    ),
    ("setting", HEAD + '[cluster.settings]\n"group.max" = 1\n', r"cluster\.settings: no coordinator setting is called"),
    (
        "setting without quotes",
        HEAD + "[cluster.settings]\ngroup.max.size = 1\n",
        r"put the names of settings in quotes",
    ),
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


@pytest.mark.parametrize(("text", "said"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_a_wrong_scenario_is_told_with_its_place(text: str, said: str) -> None:
    """The error names the file, the key, and what to do."""
    with pytest.raises(ScenarioError, match=said):
        parse_scenario(text, "f.toml")


def test_every_field_can_be_set() -> None:
    """Each field of the dataclasses has its reader, and no reader is left over."""
    names = {
        (kind.__name__, name) for kind in (ClusterSpec, TopicSpec, GroupSpec, FaultSpec) for name in kind.__slots__
    }
    assert names == {key for key in READERS if key[0] != "Scenario"}
