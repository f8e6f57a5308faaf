"""Questions to a cluster: whom they go to, when they are asked again, and what a refusal is."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

import pytest
from kafka.protocol.admin import DescribeConfigsResponse, DescribeGroupsResponse, ListGroupsResponse
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.consumer import OffsetFetchResponse
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from coordinator_core.bytes.codec import Struct, encode, make
from coordinator_core.replay.lookup import SharePartitionKey, group_partition
from jobs.errors import BrokerError
from jobs.sources.admin import Admin
from jobs.sources.admin_answers import (
    UNANSWERED,
    UNREADABLE,
    UNSUPPORTED,
    CommittedOffset,
    GroupDescription,
    ListedGroup,
    Refusal,
    ShareState,
    StateBatch,
)
from jobs.sources.api_request import ApiRequest
from jobs.sources.broker import OLD_BROKER, UNREAD_ANSWER, Broker, Deadline, Leader, TopicInfo
from schemas import wire
from schemas.admin_protocol import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    READ_SHARE_GROUP_STATE,
)

CONSUMER_GROUP_DESCRIBE_RESPONSE: Final = CONSUMER_GROUP_DESCRIBE[1]
READ_SHARE_GROUP_STATE_RESPONSE: Final = READ_SHARE_GROUP_STATE[1]
PARTITION_COUNT: Final = 2
NOT_COORDINATOR: Final = 16
INVALID_REQUEST: Final = 42
NEWEST_METADATA: Final = 13
METADATA_OF_39: Final = 12
OFFSET_FETCH_OF_28: Final = 7
GROUP_RESOURCE: Final = 32
GROUP_AUTHORIZATION_FAILED: Final = 30
GROUP_ID_NOT_FOUND: Final = 69
TOPIC_ID: Final = "tmyj-FEYST-VyJ_du8dc1w"

Answer = Callable[[Any, int | None], Any]


class FakeBroker(Broker):
    """A cluster whose answers are functions by the name of the request; node 10 leads partition 0, 11 the other."""

    def __init__(
        self, answers: Mapping[str, Answer], timeout_ms: int = 200, metadata_version: int = NEWEST_METADATA
    ) -> None:
        self.timeout_ms = timeout_ms
        self._answers = answers
        self._metadata_version = metadata_version
        self.asked: list[tuple[str, int | None]] = []
        self.forgotten: list[str] = []

    def send(self, request: Any, to: Any = None, **_: Any) -> Any:
        """Notes who was asked."""
        self.asked.append((request.name, to))
        if request.name not in self._answers:
            raise BrokerError("too old", code=OLD_BROKER)
        return self._answers[request.name](request, to)

    def topics(self, names: Any) -> dict[str, TopicInfo]:
        """Every topic is there."""
        return {name: TopicInfo(name, TOPIC_ID, PARTITION_COUNT, True) for name in names}

    def leader(self, topic: str, partition: int, *, deadline: Deadline | None = None) -> Leader:
        """One node a partition."""
        return Leader(10 + partition, 0, "127.0.0.1:1")

    def api_versions(self, api_key: int) -> range:
        """Of Metadata alone, by which the cluster's release is known."""
        return range(self._metadata_version + 1) if api_key == MetadataRequest.API_KEY else range(0)

    def forget_leaders(self, topic: str) -> None:
        """Noted."""
        self.forgotten.append(topic)


def classic_response(request: Any, codes: Mapping[str, int], members: tuple[Any, ...] = ()) -> Any:
    """DescribeGroups: an empty classic group each, or an error."""
    group = DescribeGroupsResponse.DescribedGroup
    groups = [
        group(
            group_id=name,
            error_code=codes.get(name, 0),
            group_state="Empty",
            protocol_type="consumer",
            protocol_data="",
            members=list(members),
        )
        for name in request.groups
    ]
    return DescribeGroupsResponse(groups=groups)


def consumer_response(codes: Mapping[str, int]) -> Answer:
    """ConsumerGroupDescribe: a group without members each, or an error."""
    groups: Any = CONSUMER_GROUP_DESCRIBE_RESPONSE.fields[1].kind
    assert isinstance(groups, wire.Array) and isinstance(groups.element, wire.Struct)
    described = groups.element

    def answer(request: Any, _: int | None) -> Struct:
        return make(
            CONSUMER_GROUP_DESCRIBE_RESPONSE,
            groups=tuple(
                make(described, group_id=name, error_code=codes.get(name, 0), group_state="Empty", group_epoch=3)
                for name in request._fields.group_ids
            ),
        )

    return answer


def ids_by_partition(count: int) -> dict[int, list[str]]:
    """Group ids of each partition."""
    found: dict[int, list[str]] = defaultdict(list)
    names = (f"g{number}" for number in range(1000))
    while any(len(found[partition]) < count for partition in range(PARTITION_COUNT)):
        name = next(names)
        found[group_partition(name, PARTITION_COUNT)].append(name)
    return found


def test_groups_are_asked_of_their_coordinators() -> None:
    """Each group's question goes to the leader of its partition, many groups in one request."""
    ids = ids_by_partition(3)
    broker = FakeBroker({"DescribeGroupsRequest": lambda request, _: classic_response(request, {})})
    answers = Admin(broker).describe_groups({name: "CLASSIC" for names in ids.values() for name in names})
    assert all(isinstance(it, GroupDescription) and it.group_type == "CLASSIC" for it in answers.values())
    assert sorted(broker.asked) == [("DescribeGroupsRequest", 10), ("DescribeGroupsRequest", 11)]


def test_who_is_not_ready_is_asked_again() -> None:
    """A coordinator that moved or loads gets the question again, of these groups alone; its leader is looked up."""
    codes = iter([{"a": NOT_COORDINATOR}, {}])
    requests: list[list[str]] = []

    def answer(request: Any, _: int | None) -> Any:
        requests.append(sorted(request.groups))
        return classic_response(request, next(codes))

    broker = FakeBroker({"DescribeGroupsRequest": answer})
    same = [
        name for name in "abcdefgh" if group_partition(name, PARTITION_COUNT) == group_partition("a", PARTITION_COUNT)
    ]
    answers = Admin(broker).describe_groups(dict.fromkeys(same, "CLASSIC"))
    assert requests == [same, ["a"]]
    assert answers.keys() == set(same) and not any(isinstance(it, Refusal) for it in answers.values())
    assert broker.forgotten == ["__consumer_offsets"]


def test_who_is_never_ready_is_an_error() -> None:
    """When the time is up it is said which coordinators do not answer, and why."""
    broker = FakeBroker({"DescribeGroupsRequest": lambda request, _: classic_response(request, {"a": 14})})
    with pytest.raises(BrokerError, match=r"COORDINATOR_LOAD_IN_PROGRESS.*__consumer_offsets") as raised:
        Admin(broker).describe_groups({"a": "CLASSIC"})
    assert raised.value.code == "COORDINATOR_LOAD_IN_PROGRESS"


def test_refusals_stand_in_the_answers_place() -> None:
    """An error of one group is that group's alone; a question which the broker does not know is refused as such."""
    broker = FakeBroker(
        {"DescribeGroupsRequest": lambda request, _: classic_response(request, {"a": GROUP_AUTHORIZATION_FAILED})}
    )
    answers = Admin(broker).describe_groups({"a": "CLASSIC", "b": "CLASSIC", "s": "SHARE"})
    assert answers["a"] == Refusal(GROUP_AUTHORIZATION_FAILED, "GROUP_AUTHORIZATION_FAILED")
    assert isinstance(answers["b"], GroupDescription)
    assert answers["s"] == UNSUPPORTED


def test_a_group_that_changed_its_type_is_found() -> None:
    """Listed as classic, described as what it became; what is nowhere is said to be not there."""
    missing = {"g": GROUP_ID_NOT_FOUND, "gone": GROUP_ID_NOT_FOUND}
    broker = FakeBroker(
        {
            "DescribeGroupsRequest": lambda request, _: classic_response(request, missing),
            "ConsumerGroupDescribeRequest": consumer_response({"gone": GROUP_ID_NOT_FOUND}),
        }
    )
    answers = Admin(broker).describe_groups({"g": "CLASSIC", "gone": "CLASSIC"})
    described = answers["g"]
    assert isinstance(described, GroupDescription) and (described.group_type, described.group_epoch) == ("CONSUMER", 3)
    assert answers["gone"] == Refusal(GROUP_ID_NOT_FOUND, "GROUP_ID_NOT_FOUND")


@pytest.mark.parametrize("order", [["a", "b", "b", "a"], ["b", "a", "b", "a"], ["a", "b", "a", "b"]])
def test_a_group_that_one_coordinator_of_a_broker_knows_is_there(order: list[str]) -> None:
    """Kafka 4.0 asks the coordinators of all groups of a request for all of them: a group has an answer of each."""
    groups: Any = CONSUMER_GROUP_DESCRIBE_RESPONSE.fields[1].kind
    seen: set[str] = set()
    entries = []
    for place, name in enumerate(order):
        is_known = name not in seen if name == "a" else place == max(i for i, it in enumerate(order) if it == "b")
        seen.add(name)
        code = 0 if is_known else GROUP_ID_NOT_FOUND
        entries.append(make(groups.element, group_id=name, error_code=code, group_state="Stable", group_epoch=3))
    response = make(CONSUMER_GROUP_DESCRIBE_RESPONSE, groups=tuple(entries))
    broker = FakeBroker({"ConsumerGroupDescribeRequest": lambda *_: response})
    same = {name for name in "ab" if group_partition(name, PARTITION_COUNT) == group_partition("a", PARTITION_COUNT)}
    answers = Admin(broker).describe_groups(dict.fromkeys(same, "CONSUMER"))
    assert answers.keys() == same
    assert all(isinstance(it, GroupDescription) for it in answers.values())


def test_a_group_whose_answer_cannot_be_read_takes_no_other_along() -> None:
    """Early access releases answer in forms of their own: the group is there, and the others are asked for alone."""
    same = [name for name in "abcdefgh" if group_partition(name, PARTITION_COUNT) == 0]
    early, gone, other = same[:3]
    describe = consumer_response({gone: GROUP_ID_NOT_FOUND})

    def answer(request: Any, to: int | None) -> Any:
        if early in request._fields.group_ids:
            raise BrokerError("in a form that no release declares", code=UNREAD_ANSWER)
        return describe(request, to)

    missing = dict.fromkeys((early, gone, other), GROUP_ID_NOT_FOUND)
    broker = FakeBroker(
        {
            "DescribeGroupsRequest": lambda request, _: classic_response(request, missing),
            "ConsumerGroupDescribeRequest": answer,
        }
    )
    answers = Admin(broker).describe_groups(dict.fromkeys((early, gone, other), ""))
    assert answers[early] == UNREADABLE
    assert answers[gone] == Refusal.of(GROUP_ID_NOT_FOUND)
    assert isinstance(answers[other], GroupDescription)


def test_a_dead_group_is_not_there() -> None:
    """Brokers before 4.0 describe what is not there as a group in state Dead."""

    def answer(request: Any, _: int | None) -> Any:
        response = classic_response(request, {})
        response.groups[0].group_state = "Dead"
        return response

    answers = Admin(FakeBroker({"DescribeGroupsRequest": answer})).describe_groups({"g": ""})
    assert answers == {"g": Refusal(GROUP_ID_NOT_FOUND, "GROUP_ID_NOT_FOUND")}


def test_every_broker_lists_its_groups() -> None:
    """The list is that of all brokers together; types and states as the ledger spells them."""

    def listed(_: Any, node_id: int | None) -> Any:
        group = ListGroupsResponse.ListedGroup
        return ListGroupsResponse(
            error_code=0,
            groups=[group(group_id=f"g{node_id}", protocol_type="", group_state="Stable", group_type="Consumer")],
        )

    def metadata(_: Any, __: int | None) -> Any:
        brokers = [MetadataResponse.MetadataResponseBroker(node_id=it, host="h", port=1) for it in (2, 1)]
        return MetadataResponse(brokers=brokers, topics=[])

    broker = FakeBroker({"ListGroupsRequest": listed, "MetadataRequest": metadata})
    assert Admin(broker).list_groups() == {
        "g1": ListedGroup("g1", "CONSUMER", "", "Stable"),
        "g2": ListedGroup("g2", "CONSUMER", "", "Stable"),
    }


def test_a_list_that_is_refused_is_an_error() -> None:
    """There is no list without one of its parts."""
    metadata = MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=1)], topics=[]
    )
    refused = ListGroupsResponse(error_code=31, groups=[])
    broker = FakeBroker({"ListGroupsRequest": lambda *_: refused, "MetadataRequest": lambda *_: metadata})
    with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
        Admin(broker).list_groups()


def test_committed_offsets_have_no_sentinels() -> None:
    """Leader epoch -1 is none, and a group of which nothing is said in the response is unanswered."""
    group = OffsetFetchResponse.OffsetFetchResponseGroup
    topic = group.OffsetFetchResponseTopics
    partition = topic.OffsetFetchResponsePartitions
    answered = [
        partition(partition_index=0, committed_offset=5, committed_leader_epoch=-1, metadata=None, error_code=0),
        partition(partition_index=1, committed_offset=6, committed_leader_epoch=2, metadata="m", error_code=0),
        partition(partition_index=2, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=0),
    ]
    response = OffsetFetchResponse(
        groups=[group(group_id="a", error_code=0, topics=[topic(name="t", partitions=answered)])]
    )
    answers = Admin(FakeBroker({"OffsetFetchRequest": lambda *_: response})).committed_offsets(["a", "b"])
    assert answers["a"] == {("t", 0): CommittedOffset(5, None, ""), ("t", 1): CommittedOffset(6, 2, "m")}
    assert answers["b"] == UNANSWERED


def test_a_broker_that_reads_offsets_of_one_group_at_a_time_is_asked_so() -> None:
    """Before 3.0 OffsetFetch names one group: a request each, and a refused group does not take the others along."""
    topic = OffsetFetchResponse.OffsetFetchResponseTopic
    partition = topic.OffsetFetchResponsePartition
    asked: list[tuple[str, int, int]] = []

    def answer(request: Any, _: int | None) -> Any:
        if request._min_version > OFFSET_FETCH_OF_28:
            raise BrokerError("knows 0 to 7", code=OLD_BROKER)
        asked.append((request.group_id, request._min_version, request._max_version))
        offset = int(request.group_id.removeprefix("g"))
        found = partition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, metadata="", error_code=0
        )
        code = GROUP_AUTHORIZATION_FAILED if request.group_id == "g2" else 0
        return OffsetFetchResponse(error_code=code, topics=[topic(name="t", partitions=[found])])

    answers = Admin(FakeBroker({"OffsetFetchRequest": answer})).committed_offsets(["g1", "g2", "g3"])
    assert answers == {
        "g1": {("t", 0): CommittedOffset(1, None, "")},
        "g2": Refusal.of(GROUP_AUTHORIZATION_FAILED),
        "g3": {("t", 0): CommittedOffset(3, None, "")},
    }
    assert sorted(asked) == [("g1", 2, 7), ("g2", 2, 7), ("g3", 2, 7)]


def test_a_question_that_no_version_answers_says_which_request_is_missing() -> None:
    """Before 0.10.2 nobody can ask for all offsets of a group: the refusal has what the broker said of its versions."""
    (refusal,) = Admin(FakeBroker({})).committed_offsets(["g"]).values()
    assert isinstance(refusal, Refusal)
    assert (refusal, refusal.why) == (UNSUPPORTED, "UNSUPPORTED_VERSION: too old")


def config_response(refused: int) -> Answer:
    """DescribeConfigs of a broker: a config of each topic; whoever names a group too is refused whole."""
    result = DescribeConfigsResponse.DescribeConfigsResult

    def answer(request: Any, _: int | None) -> Any:
        code = INVALID_REQUEST if any(it.resource_type == refused for it in request.resources) else 0
        config = result.DescribeConfigsResourceResult(name="cleanup.policy", value="compact", config_source=1)
        return DescribeConfigsResponse(
            results=[
                result(
                    error_code=code,
                    resource_type=it.resource_type,
                    resource_name=it.resource_name,
                    configs=[] if code else [config],
                )
                for it in request.resources
            ]
        )

    return answer


def test_a_broker_that_refuses_configs_of_groups_tells_those_of_topics() -> None:
    """Groups and topics are asked for in requests of their own."""
    broker = FakeBroker({"DescribeConfigsRequest": config_response(refused=GROUP_RESOURCE)})
    found, refused = Admin(broker).configs(group_ids=["g"], topics=["t"])
    assert [(it.resource_type, it.resource_name) for it in found] == [("TOPIC", "t")]
    assert refused == {("GROUP", "g"): Refusal.of(INVALID_REQUEST)}


def test_a_broker_without_configs_of_groups_is_not_asked_for_them() -> None:
    """Brokers before 4.0 log an error each time somebody asks: groups have no configs there."""
    broker = FakeBroker(
        {"DescribeConfigsRequest": config_response(refused=GROUP_RESOURCE)}, metadata_version=METADATA_OF_39
    )
    admin = Admin(broker)
    found, refused = admin.configs(group_ids=["g"], topics=["t"])
    assert ([it.resource_name for it in found], refused, admin.configured_groups()) == (["t"], {}, ())
    assert [name for name, _ in broker.asked] == ["DescribeConfigsRequest"]


def test_topics_without_ids_are_topics() -> None:
    """Brokers before 2.8 tell no ids: names and numbers of partitions are there."""
    topic = MetadataResponse.MetadataResponseTopic
    answered = MetadataResponse(
        brokers=[],
        topics=[
            topic(error_code=0, name="old", topic_id=None, partitions=[]),
            topic(error_code=0, name="zero", topic_id=UUID(int=0), partitions=[]),
            topic(error_code=0, name="new", topic_id=UUID(int=1), partitions=[]),
        ],
    )
    topics = Admin(FakeBroker({"MetadataRequest": lambda *_: answered})).topics()
    assert {name: it.topic_id for name, it in topics.items()} == {"old": None, "zero": None, "new": "A" * 21 + "Q"}


def states_response(request: Any, result_fields: Mapping[str, Any]) -> Struct:
    """What a share coordinator answers: the same of each share partition that is asked for."""
    result: Any = READ_SHARE_GROUP_STATE_RESPONSE.fields[0].kind
    partition: Any = result.element.fields[1].kind
    return make(
        READ_SHARE_GROUP_STATE_RESPONSE,
        results=tuple(
            make(
                result.element,
                topic_id=topic.topic_id,
                partitions=tuple(
                    make(partition.element, partition=it.partition, **result_fields) for it in topic.partitions
                ),
            )
            for topic in request._fields.topics
        ),
    )


def test_share_states_are_read_without_writing() -> None:
    """The leader epoch sent is the one that the coordinator answered, else -1: neither leaves a record; a request names
    one group."""
    keys = [SharePartitionKey(group, TOPIC_ID, partition) for group in "ab" for partition in range(4)]
    requests: list[Struct] = []
    batch: Any = READ_SHARE_GROUP_STATE_RESPONSE.fields[0].kind.element.fields[1].kind.element.fields[-1].kind  # type: ignore[union-attr]
    batches = (make(batch.element, first_offset=7, last_offset=9, delivery_state=2),)

    def answer(request: Any, _: int | None) -> Struct:
        requests.append(request._fields)
        return states_response(request, {"state_epoch": 1, "start_offset": 7, "state_batches": batches})

    answered = {key: key.partition for key in keys[:-1]}
    states = Admin(FakeBroker({"ReadShareGroupStateRequest": answer})).share_states(keys, answered)
    assert states == dict.fromkeys(keys, ShareState(1, 7, (StateBatch(7, 9, 2, 0),)))
    sent = [(it.group_id, part.leader_epoch) for it in requests for topic in it.topics for part in topic.partitions]
    assert sorted(sent) == [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", -1), ("b", 0), ("b", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        ("The leader epoch cannot be a negative number.", Refusal(-2, "LEADER_EPOCH_NOT_KNOWN")),
        ("Read operation on uninitialized share partition not allowed.", Refusal.of(42)),
        (None, Refusal.of(42)),
    ],
)
def test_a_state_that_is_refused_is_not_one_that_is_not_there(message: str | None, refusal: Refusal) -> None:
    """Kafka 4.4 says INVALID_REQUEST of a negative leader epoch, too: that does not say that there is no state."""
    key = SharePartitionKey("a", TOPIC_ID, 0)

    def answer(request: Any, _: int | None) -> Struct:
        return states_response(request, {"error_code": 42, "error_message": message})

    assert Admin(FakeBroker({"ReadShareGroupStateRequest": answer})).share_states([key]) == {key: refusal}


# --- requests of our own declaration


def sent(request: ApiRequest, version: int) -> bytes:
    """What goes out."""
    request.API_VERSION = version
    request.with_header(correlation_id=7, client_id="größe")
    return request.encode(framed=True, header=True)


def received(data: bytes) -> KafkaBytes:
    """What a connection hands over to be read."""
    stream = KafkaBytes(len(data))
    stream.write(data)
    stream.seek(0)
    return stream


def test_a_request_is_framed_as_kafka_pythons_own() -> None:
    """Length, header of a flexible request with the client id in the old form, then the fields."""
    request = ApiRequest(CONSUMER_GROUP_DESCRIBE, group_ids=("g",))
    data = sent(request, 1)
    header = RequestHeader(request_api_key=69, request_api_version=1, correlation_id=7, client_id="größe").encode(
        flexible=True
    )
    assert data == len(data[4:]).to_bytes(4, "big") + header + b"\x02\x02g\x00\x00"
    assert request.expect_response()
    assert repr(request) == "ConsumerGroupDescribeRequest(version=1)"


DELETED: Final = {
    0: ("0000000200066f72646572730002c3a9", "000000070000000200066f726465727300000002c3a90086"),
    1: ("0000000200066f72646572730002c3a9", "000000070000000200066f726465727300000002c3a90086"),
    2: ("03076f726465727303c3a900", "0000000703076f726465727300000003c3a900860000"),
    3: ("03076f726465727303c3a900", "0000000703076f72646572730000000003c3a90086086e6f74206e6f770000"),
}
"""DeleteGroups by version, as DeleteGroupsRequestData and DeleteGroupsResponseData of Kafka 4.4.0 write it."""


@pytest.mark.parametrize("version", DELETED)
def test_delete_groups_has_the_bytes_of_kafkas_own_classes(version: int) -> None:
    """Request and response in each version; why a group was not deleted is said since version 3."""
    request, response = (bytes.fromhex(it) for it in DELETED[version])
    asked = ApiRequest(DELETE_GROUPS, groups_names=("orders", "é"))
    assert sent(asked, version).endswith(request)
    assert asked.encode() == request
    assert asked.header is not None
    header = (7).to_bytes(4, "big") + bytes(version >= 2)
    stream = received(header + response)
    reader = asked.header.get_response_class()
    assert reader.parse_header(stream).correlation_id == 7
    answer = reader.decode(stream)
    assert [(it.group_id, it.error_code, it.error_message) for it in answer.results] == [
        ("orders", 0, None),
        ("é", 134, "not now" if version >= 3 else None),
    ]
    assert encode(DELETE_GROUPS[1], answer, version) == response


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (16, "NOT_COORDINATOR"),
        (-1, "UNKNOWN"),
        (128, "INVALID_REGULAR_EXPRESSION"),
        (133, "SHARE_SESSION_LIMIT_REACHED"),
        (134, "GROUP_DELETION_FAILED"),
        (135, "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED"),
        (136, "CONTROLLER_ID_NOT_REGISTERED"),
        (999, "error 999"),
    ],
)
def test_errors_of_later_releases_have_their_names(code: int, name: str) -> None:
    """Also where kafka-python knows no such code and calls it UNKNOWN, which is another error."""
    assert Refusal.of(code) == Refusal(code, name)


def test_versions_are_agreed_upon_as_for_any_request() -> None:
    """kafka-python finds the newest version which both sides know."""
    versions = BrokerVersionData((4, 3))
    versions.api_versions = {69: (0, 0)}
    assert versions.api_version(ApiRequest(CONSUMER_GROUP_DESCRIBE)) == 0
    versions.api_versions = {69: (0, 9)}
    assert versions.api_version(ApiRequest(CONSUMER_GROUP_DESCRIBE)) == 1


def test_a_response_is_read_behind_its_header() -> None:
    """The header may hold tags of a later Kafka."""
    request = ApiRequest(READ_SHARE_GROUP_STATE, group_id="g", topics=())
    sent(request, 0)
    assert request.header is not None
    reader = request.header.get_response_class()
    response = make(READ_SHARE_GROUP_STATE_RESPONSE)
    body = encode(READ_SHARE_GROUP_STATE_RESPONSE, response, 0)
    stream = received((7).to_bytes(4, "big") + b"\x01\x05\x02xy" + body)
    assert reader.parse_header(stream).correlation_id == 7
    assert reader.decode(stream) == response


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x01\x05", b"\x00\x7f\x01", b"\x00" + b"\xff" * 9, b"\xff\xff\xff\xff\x07" + bytes(9)]
)
def test_bytes_that_are_no_response(data: bytes) -> None:
    """The connection's own error comes of it, whatever the bytes."""
    request = ApiRequest(READ_SHARE_GROUP_STATE, group_id="g", topics=())
    sent(request, 0)
    assert request.header is not None
    with pytest.raises(ValueError, match="cannot be decoded"):
        request.header.get_response_class().decode(received(data))
