"""Checks whether the tables of a scenario are consistent with one another, once all are read."""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Final

from coordinator_core.bytes.kafka_versions import Since
from simulator.simulation.clients.share import FORGET, TIME_OUT
from simulator.simulation.clients.streams import changelog_topic, repartition_topic
from simulator.simulation.scenario import (
    ALL_PARTITIONS_MAX,
    ALTERABLE,
    CLIENTS_MAX,
    FAULT_KEYS,
    FAULT_KEYS_MORE,
    ONCE,
    STRIKES_MAX,
    FaultSpec,
    GroupSpec,
    Scenario,
    TopicSpec,
    coordinator_configs,
    key_of,
    occurrences,
    topics_made_later,
    with_config,
)
from simulator.simulation.scenario_place import Place, near, shown
from simulator.simulation.values import TIME_MS, TOPIC_NAME, reset_duration_ms

CLASSIC_ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
POISON_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "classic": ("skip", "stuck"),
    "consumer": ("skip", "stuck"),
    "streams": ("skip", "stuck"),
    "share": ("skip", "reject", "release", TIME_OUT, FORGET),
}
OF_EACH_MEMBER: Final = (
    "member_topics",
    "member_assignors",
    "member_max_poll_interval_ms",
    "racks",
    "client_tags",
    "instance_ids",
)
"""Keys whose values members take in turns."""


def check(scenario: Scenario, place: Place) -> None:
    """Check that the tables of the scenario are consistent. Raises ScenarioError."""
    if scenario.end_ms > TIME_MS[1]:
        raise place.key("duration").error("must end before the year 10000: begin earlier, or make it shorter")
    topics = {topic.name: topic for topic in scenario.topics}
    if len(topics) < len(scenario.topics):
        raise place.key("topic").error("two topics have one name: give each its own")
    _check_size(scenario, place)
    metric_names: dict[str, str] = {}
    for index, topic in enumerate(scenario.topics):
        of_topic = place.key("topic").item(index)
        other = metric_names.setdefault(topic.name.replace(".", "_"), topic.name)
        if other != topic.name:
            raise of_topic.key("name").error(
                f"collides with {shown(other)}: brokers refuse topics that differ in '.' and '_' only"
            )
        if topic.transaction_records % topic.batch_records:
            raise of_topic.key("transaction_records").error(
                f"must be a multiple of batch_records ({topic.batch_records}): a batch is of one transaction"
            )
        if topic.abort_every and not topic.transaction_records:
            raise of_topic.key("abort_every").error("does nothing without transaction_records: leave it out")
    if len(scenario.cluster.racks) > scenario.cluster.brokers:
        of_racks = place.key("cluster").key("racks")
        raise of_racks.error(
            f"has more racks than there are brokers ({scenario.cluster.brokers}): the last would do nothing"
        )
    group_ids: set[str] = set()
    for index, group in enumerate(scenario.groups):
        of_group = place.key("group").item(index)
        _check_group(scenario, group, topics, of_group)
        _check_streams(scenario, group, topics, of_group)
        if not group_ids.isdisjoint(group.group_ids()):
            raise of_group.key("name").error("is taken by another group: give each its own")
        group_ids.update(group.group_ids())
    _check_dead_letters(scenario, topics, place)
    for index, fault in enumerate(scenario.faults):
        _check_fault(scenario, fault, topics, place.key("fault").item(index))
    _check_lives_of_topics(scenario, topics, place.key("fault"))
    _check_poison(scenario, topics, place.key("group"))


def _check_made(names: Iterable[str], topics: Mapping[str, TopicSpec], place: Place) -> None:
    for name in names:
        if name not in topics:
            raise place.error(f"names {shown(name)}, which no [[topic]] makes: add it{near(name, topics)}")


def _check_unique(names: Collection[str], place: Place) -> None:
    if len(set(names)) < len(names):
        raise place.error("has a name twice: name each once")


def _check_dead_letters(scenario: Scenario, topics: Mapping[str, TopicSpec], place: Place) -> None:
    has_dead_letters = Since.ARCHIVING_IS_A_STATE.holds_in(scenario.cluster.kafka_version)
    needed = (
        f"needs Kafka 4.4, and the brokers run {scenario.cluster.kafka_version}: "
        'set kafka_version = "4.4" in [cluster], or --kafka-version 4.4'
    )
    written: set[str] = set()
    for index, group in enumerate(scenario.groups):
        name, key = group.dead_letter_topic, place.key("group").item(index).key("dead_letter_topic")
        if name is None:
            continue
        written.add(name)
        if not has_dead_letters:
            raise key.error(needed)
        _check_made([name], topics, key)
        if name in group.topics:
            raise key.error("is among topics: the group would copy its own dead letters again; name another one")
    for index, topic in enumerate(scenario.topics):
        of_topic = place.key("topic").item(index)
        if topic.dead_letters and not has_dead_letters:
            raise of_topic.key("dead_letters").error(needed)
        for key_name in ("rate", "transaction_records"):
            if (topic.dead_letters or topic.name in written) and getattr(topic, key_name):
                raise of_topic.key(key_name).error("must be 0: brokers write the records of a dead letter topic")


def _check_size(scenario: Scenario, place: Place) -> None:
    """Refuse scenarios that a few keys make too large for any memory."""
    if sum(group.count * group.members for group in scenario.groups) > CLIENTS_MAX:
        raise place.key("group").error(f"count and members make more than {CLIENTS_MAX} members in all: lower them")
    counts = {topic.name: topic.partitions for topic in scenario.topics}
    for fault in scenario.faults:
        if fault.topic is not None and fault.partitions is not None:
            counts[fault.topic] = max(counts.get(fault.topic, 0), fault.partitions)
    if sum(counts.values()) > ALL_PARTITIONS_MAX:
        raise place.key("topic").error(f"partitions are more than {ALL_PARTITIONS_MAX} in all: lower them")


def _check_poison(scenario: Scenario, topics: Mapping[str, TopicSpec], place: Place) -> None:
    """Refuse what a group does with poison where it never meets any."""
    poisoned = {fault.topic for fault in scenario.faults if fault.kind == "poison"}
    for index, group in enumerate(scenario.groups):
        has_poison = any(name in poisoned or topics[name].poison_every for name in group.topics)
        if group.on_poison != "skip" and not has_poison:
            raise (
                place.item(index)
                .key("on_poison")
                .error("does nothing: none of its topics has poison (poison_every, or a fault of kind poison)")
            )


def _check_group(scenario: Scenario, group: GroupSpec, topics: Mapping[str, TopicSpec], place: Place) -> None:
    _check_made(group.topics, topics, place.key("topics"))
    if group.start_after_ms >= scenario.duration_ms:
        raise place.key("start_after").error("is not before the end of the scenario: the group would never start")
    _check_member_topics(group, place.key("member_topics"))
    for name in OF_EACH_MEMBER:
        if len(getattr(group, name)) > group.members:
            raise place.key(key_of(GroupSpec, name)).error(
                f"has more than the group has members ({group.members}): the last does nothing"
            )
    _check_member_assignors(group, place.key("member_assignors"))
    known = {"classic": CLASSIC_ASSIGNORS, "consumer": scenario.cluster.settings.group_consumer_assignors}
    for assignor in group.assignors:
        if assignor not in known.get(group.protocol, ()):
            text = ", ".join(known[group.protocol]) if group.protocol in known else "none: share groups have but one"
            raise place.key("assignors").error(f"must be among {text}")
    if group.protocol == "consumer" and len(group.assignors) > 1:
        raise place.key("assignors").error("takes one in a consumer group (group.remote.assignor): name one")
    _check_unique(group.topics, place.key("topics"))
    _check_unique(group.assignors, place.key("assignors"))
    if group.on_poison not in POISON_OF[group.protocol]:
        raise place.key("on_poison").error(
            f"must be one of {', '.join(POISON_OF[group.protocol])} in a {group.protocol} group"
        )
    if group.instance_ids and not group.static:
        raise place.key("instance_ids").error("does nothing unless members are static: set static to true")
    if group.protocol != "share" and reset_duration_ms(group.auto_offset_reset) is not None:
        raise place.key("offset_reset").error(f"must be earliest or latest in a {group.protocol} group")
    if group.protocol == "share" and group.commits == "transactional":
        raise place.key("commits").error("share groups commit no offsets: leave it out")
    settings = scenario.cluster.settings
    shortest_ms, longest_ms = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    if group.protocol == "classic" and not shortest_ms <= group.session_ms <= longest_ms:
        raise place.key("session_timeout").error(
            f"the brokers take {shortest_ms} to {longest_ms} ms (group.min.session.timeout.ms, group.max...)"
        )
    _check_timeouts(group, scenario, place.key("heartbeat_interval"))


def _check_timeouts(group: GroupSpec, scenario: Scenario, place: Place) -> None:
    in_force = tuple(coordinator_configs(group, scenario.cluster.settings).values())
    session_ms, heartbeat_ms = in_force[:2] or (group.session_ms, group.heartbeat_ms)
    if heartbeat_ms >= session_ms:
        raise place.error(f"must be below session_timeout ({session_ms} ms): heartbeat_interval is {heartbeat_ms} ms")


def _check_streams(scenario: Scenario, group: GroupSpec, topics: Mapping[str, TopicSpec], place: Place) -> None:
    """Refuse what a Streams application or its brokers would refuse."""
    if group.protocol != "streams":
        return
    version = scenario.cluster.kafka_version
    if group.static and not Since.STREAMS_HAVE_STATIC_MEMBERS.holds_in(version):
        raise place.key("static").error(
            f"needs kafka_version 4.4 in a streams group: brokers of {version} refuse static members there"
        )
    if TOPIC_NAME.fullmatch(group.name) is None:
        raise place.key("name").error(
            "must be letters, digits, '.', '_' and '-' in a streams group: its internal topics are named after it"
        )
    if group.threads > group.members:
        raise place.key("threads").error(f"is above the members of the group ({group.members}): the last do nothing")
    for group_id in group.group_ids():
        for internal in (repartition_topic(group_id), changelog_topic(group_id)):
            if TOPIC_NAME.fullmatch(internal) is None:
                raise place.key("name").error(
                    f"makes {shown(internal)} an internal topic: names of topics have 249 characters at most"
                )
            if internal in topics:
                raise place.key("name").error(
                    f"makes {shown(internal)} an internal topic, and a [[topic]] has that name"
                )
    for index, fault in enumerate(scenario.faults):
        if fault.topic in group.topics and fault.kind in {"create_topic", "delete_topic"}:
            raise place.key("topics").error(
                f"names {shown(fault.topic)}, which fault[{index}] ({fault.kind}) takes away for a time: the "
                "application would end (MissingSourceTopicException), which is not simulated. Name another topic"
            )
        if fault.topic in group.topics and fault.kind == "add_partitions" and (group.stateful or group.repartition):
            raise place.key("topics").error(
                f"names {shown(fault.topic)}, which fault[{index}] ({fault.kind}) gives more partitions than the "
                "internal topics have: the group would assign nothing any more. Set stateful and repartition to false"
            )


def _check_member_assignors(group: GroupSpec, place: Place) -> None:
    if group.member_assignors and group.assignors:
        raise place.error("says the assignors of each member: leave out assignors")
    for index, assignors in enumerate(group.member_assignors):
        for assignor in assignors:
            if assignor not in CLASSIC_ASSIGNORS:
                raise place.item(index).error(f"must be among {', '.join(CLASSIC_ASSIGNORS)}")
        _check_unique(assignors, place.item(index))


def _check_member_topics(group: GroupSpec, place: Place) -> None:
    if not group.member_topics:
        return
    for index, topics in enumerate(group.member_topics):
        for topic in topics:
            if topic not in group.topics:
                raise place.item(index).error(f"names {shown(topic)}, which is not among topics: add it there")
        _check_unique(topics, place.item(index))
    unused = sorted(set(group.topics).difference(*group.member_topics))
    if unused:
        raise place.error(f"leaves out {shown(unused[0])} of topics: no member would subscribe to it")


def _check_fault(scenario: Scenario, fault: FaultSpec, topics: Mapping[str, TopicSpec], place: Place) -> None:
    given = {key_of(FaultSpec, spec.name) for spec in fields(fault) if getattr(fault, spec.name) is not None}
    for key in FAULT_KEYS[fault.kind]:
        if key not in given:
            raise place.key(key).error(f"is missing: {fault.kind} needs it")
    usable = {"kind", "at", "every", *FAULT_KEYS[fault.kind], *FAULT_KEYS_MORE.get(fault.kind, ())}
    for key in sorted(given - usable):
        raise place.key(key).error(
            f"does nothing for {fault.kind}, which takes {', '.join(sorted(usable))}: leave it out"
        )
    strike_count = 0 if fault.every_ms is None else (scenario.duration_ms - fault.at_ms) // fault.every_ms
    if strike_count > STRIKES_MAX:
        raise place.key("every").error(f"lets the fault strike more than {STRIKES_MAX} times: make it longer")
    if fault.at_ms >= scenario.duration_ms:
        raise place.key("at").error("is not before the end of the scenario: the fault would never strike")
    if fault.group is not None:
        specs = [group for group in scenario.groups if fault.group in {group.name, *group.group_ids()}]
        if not specs:
            ids = [group.name for group in scenario.groups]
            raise place.key("group").error(
                f"there is no group {shown(fault.group)}: name one that a [[group]] makes{near(fault.group, ids)}"
            )
        if fault.member is not None and fault.member >= specs[0].members:
            raise place.key("member").error(f"group {shown(fault.group)} has members 0 to {specs[0].members - 1}")
    _check_topics_of_fault(scenario, fault, topics, place)
    if fault.broker is not None and fault.broker > scenario.cluster.brokers:
        raise place.key("broker").error(f"must be one of the brokers, 1 to {scenario.cluster.brokers}")
    if fault.kind == "broker_failover" and scenario.cluster.brokers < 2:
        raise place.key("broker").error("needs another broker to take over: set cluster.brokers to 2 or more")
    for group in scenario.groups if fault.kind == "delete_topic" else ():
        if group.commits == "transactional" and fault.topic in group.topics:
            raise place.key("topic").error(
                f"is read by {shown(group.name)}, which commits in transactions: those of a deleted topic are not "
                'simulated. Name another topic, or set commits = "auto" there'
            )
    is_remade = any(it.kind in {"create_topic", "delete_topic"} and it.topic == fault.topic for it in scenario.faults)
    if fault.every_ms is not None and fault.kind in ONCE and not is_remade:
        raise place.key("every").error(
            f"does nothing for {fault.kind}, which changes nothing the second time: leave it out"
        )
    if fault.every_ms is not None and fault.duration_ms is not None and fault.duration_ms >= fault.every_ms:
        raise place.key("every").error("must be longer than duration")


def _check_topics_of_fault(scenario: Scenario, fault: FaultSpec, topics: Mapping[str, TopicSpec], place: Place) -> None:
    _check_made(fault.topics or (), topics, place.key("topics"))
    _check_admin(scenario, fault, place)
    _check_unique(fault.topics or (), place.key("topics"))
    if fault.topic is not None and fault.topic not in topics:
        raise place.key("topic").error(
            f"there is no topic {shown(fault.topic)}: name one that a [[topic]] makes{near(fault.topic, topics)}"
        )
    if fault.topic is not None and fault.partition is not None:
        grown = [
            it.partitions or 0
            for it in scenario.faults
            if it.kind in {"add_partitions", "create_topic"} and it.topic == fault.topic
        ]
        count = max(topics[fault.topic].partitions, *grown, 0)
        if fault.partition >= count:
            raise place.key("partition").error(f"topic {shown(fault.topic)} has partitions 0 to {count - 1}")


OF_TOPICS: Final = frozenset(
    {"create_topic", "delete_topic", "add_partitions", "poison", "producer_stall", "delete_records"}
)
"""Faults that need an existing topic, except `create_topic`, which needs the topic not to exist."""


def _check_lives_of_topics(scenario: Scenario, topics: Mapping[str, TopicSpec], place: Place) -> None:
    """Follow each topic through its faults: none may hit a topic that does not exist at that time."""

    def strikes(index: int, fault: FaultSpec) -> Iterator[tuple[int, int]]:
        return ((at_ms, index) for at_ms in occurrences(fault, scenario.duration_ms))

    made_later = topics_made_later(scenario.faults)
    counts = {name: 0 if name in made_later else topic.partitions for name, topic in topics.items()}
    of_topics = ((index, fault) for index, fault in enumerate(scenario.faults) if fault.kind in OF_TOPICS)
    for _, index in heapq.merge(*(strikes(index, fault) for index, fault in of_topics)):
        fault = scenario.faults[index]
        name, at = fault.topic or "", place.item(index)
        count = counts[name]
        if fault.kind == "create_topic":
            if count:
                raise at.key("topic").error(f"topic {shown(name)} exists at that time: put a delete_topic before")
            counts[name] = fault.partitions or topics[name].partitions
            continue
        if not count:
            raise at.key("topic").error(f"topic {shown(name)} does not exist at that time: put a create_topic before")
        if fault.kind == "delete_topic":
            counts[name] = 0
        elif fault.kind == "add_partitions":
            if (fault.partitions or 0) <= count:
                raise at.key("partitions").error(
                    f"must be above what the topic has at that time ({count}): partitions never go away"
                )
            counts[name] = fault.partitions or 0
        elif fault.partition is not None and fault.partition >= count:
            raise at.key("partition").error(f"topic {shown(name)} has partitions 0 to {count - 1} at that time")


OF_SHARE_GROUPS: Final = frozenset({"alter_config", "alter_share_offsets", "delete_share_offsets"})


def _check_admin(scenario: Scenario, fault: FaultSpec, place: Place) -> None:
    specs = [group for group in scenario.groups if fault.group in {group.name, *group.group_ids()}]
    if fault.kind == "subscribe" and specs and specs[0].protocol == "streams":
        raise place.key("group").error(f"must be no streams group: its topology says what {shown(specs[0].name)} reads")
    if fault.kind in OF_SHARE_GROUPS and specs and specs[0].protocol != "share":
        raise place.key("group").error(
            f"must be a share group: {fault.kind} is of those, and {shown(fault.group or '')} is none"
        )
    if fault.config is not None and fault.value is not None:
        _, read = ALTERABLE[fault.config]
        read(fault.value, place.key("value"))
        for group in specs:
            _check_timeouts(with_config(group, fault.config, fault.value), scenario, place.key("value"))
