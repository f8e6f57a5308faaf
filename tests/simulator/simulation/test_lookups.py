"""How simulated clients and brokers find coordinators: FindCoordinator of all three key types, on the virtual clock."""

import random
from collections.abc import Sequence

import pytest

from coordinator_core.live.find_coordinator.broker import NO_NODE, Coordinator, FindCoordinatorRequest, Node
from schemas.error_codes import ErrorCode
from simulator.simulation.clients.machine import Service
from simulator.simulation.clock import EventLoop
from simulator.simulation.cluster import TOPIC_CREATION_MS
from simulator.simulation.lookups import Lookups
from tests.simulator.simulation.simulations import run_text

GROUP = '[[group]]\nname = "g"\ntopics = ["t"]\nmembers = 3\nstagger = "1ms"\n'
NEW = {"brokers = 3": "brokers = 3\nnew_cluster = true"}
LATENCY_MS = 2


class Brokers:
    """Brokers with planned answers: by node, what to answer, None where it is gone."""

    def __init__(self, answers: dict[int, list[ErrorCode | int | None]]) -> None:
        self.answers = answers
        self.asked: list[tuple[int, int, FindCoordinatorRequest]] = []
        self.loop = EventLoop(0)

    def nodes(self) -> Sequence[int]:
        return sorted(self.answers)

    def find_coordinators(
        self, broker_id: int, request: FindCoordinatorRequest, group_id: str, sender: str
    ) -> Sequence[Coordinator] | None:
        assert (group_id, sender) == ("group", "client")
        self.asked.append((self.loop.now_ms, broker_id, request))
        answer = self.answers[broker_id].pop(0)
        if answer is None:
            return None
        (key,) = request.keys
        if isinstance(answer, ErrorCode):
            return [Coordinator(key, NO_NODE, answer)]
        return [Coordinator(key, Node(answer, "", -1))]


def looked_up(brokers: Brokers, service: Service = Service.GROUP, *, count: int = 1) -> list[tuple[int, object]]:
    """When so many requests at one time found their coordinator, and which."""
    lookups = Lookups("group", "client", LATENCY_MS, brokers.loop, brokers, random.Random(1))
    found: list[tuple[int, object]] = []

    def note(what: object) -> None:
        found.append((brokers.loop.now_ms, what))

    for _ in range(count):
        lookups.find(service, "key", note, note)
    brokers.loop.run_until(10_000)
    return found


def test_requests_for_one_key_share_one_look_up() -> None:
    """One FindCoordinator, one way there and one back, and all that waited goes on."""
    brokers = Brokers({1: [3]})
    assert looked_up(brokers, count=3) == [(2 * LATENCY_MS, 3)] * 3
    assert [(at_ms, broker_id) for at_ms, broker_id, _ in brokers.asked] == [(LATENCY_MS, 1)]


@pytest.mark.parametrize(("service", "key_type"), [(Service.GROUP, 0), (Service.TRANSACTION, 1)])
def test_the_key_type_is_that_of_the_service(service: Service, key_type: int) -> None:
    """Group ids are of type 0, transactional ids of type 1."""
    brokers = Brokers({1: [3]})
    looked_up(brokers, service)
    assert [(request.key_type, request.keys) for _, _, request in brokers.asked] == [(key_type, ("key",))]


def test_an_answer_that_there_is_none_is_followed_by_back_off() -> None:
    """COORDINATOR_NOT_AVAILABLE: asked again after 100 ms, then 200 ms, a fifth more or less (KIP-580)."""
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    brokers = Brokers({1: [unavailable, unavailable, 3]})
    ((_, coordinator),) = looked_up(brokers)
    assert coordinator == 3
    first, second, third = (at_ms for at_ms, _, _ in brokers.asked)
    assert 80 <= second - first - 2 * LATENCY_MS <= 120
    assert 160 <= third - second - 2 * LATENCY_MS <= 240


def test_a_broker_that_does_not_answer_is_not_asked_next() -> None:
    """The least loaded node is another one, as long as one is connected."""
    brokers = Brokers({1: [None] * 9, 2: [3] * 9})
    for _ in range(8):
        looked_up(brokers)
    gone = [at for at, (_, broker_id, _) in enumerate(brokers.asked) if broker_id == 1]
    assert all(brokers.asked[at + 1][1] == 2 for at in gone)


def test_what_asking_again_does_not_mend_is_an_error() -> None:
    """Whoever waits gets the error, and may ask again."""
    brokers = Brokers({1: [ErrorCode.INVALID_REQUEST, 3]})
    assert looked_up(brokers) == [(2 * LATENCY_MS, ErrorCode.INVALID_REQUEST)]


def test_internal_topics_of_a_new_cluster_are_made_at_first_use() -> None:
    """By the first look-up, which is answered COORDINATOR_NOT_AVAILABLE: whoever came first waits for a back-off."""
    text = GROUP.replace('"g"', '"s"') + 'protocol = "share"\n'
    text += GROUP.replace("members", 'commits = "transactional"\nstart_after = "30s"\nmembers')
    run = run_text(text, minutes=2, head=NEW)
    topics = {log.topic for log, _ in run.simulation.logs()}
    assert topics == {"__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state"}
    first_ms = min(line["ts_ms"] for line in run.lines("generations", group="s")) - run.simulation.scenario.start_ms
    before = run_text(text, minutes=2)
    known_ms = min(line["ts_ms"] for line in before.lines("generations", group="s")) - run.simulation.scenario.start_ms
    assert TOPIC_CREATION_MS <= first_ms - known_ms <= 130
    # the second group finds its topic made, and the first transaction makes its own
    waited = [one.lines("generations", group="g")[0]["ts_ms"] for one in (run, before)]
    assert waited[0] == waited[1]


def test_a_topic_that_nobody_needs_is_not_made() -> None:
    """Without share groups and transactions there is `__consumer_offsets` alone."""
    run = run_text(GROUP, minutes=1, head=NEW)
    assert {log.topic for log, _ in run.simulation.logs()} == {"__cluster_metadata", "__consumer_offsets"}


def test_members_find_the_coordinator_after_a_failover() -> None:
    """The broker that coordinated is gone: look-ups are answered COORDINATOR_NOT_AVAILABLE until another one leads, and
    no member is lost."""
    calm = run_text(GROUP, minutes=4)
    cluster = calm.simulation.cluster
    leader = cluster.groups.leader(cluster.partition_of("g"))
    fault = f'[[fault]]\nkind = "broker_failover"\nat = "60s"\nbroker = {leader}\nduration = "1m"\n'
    run = run_text(GROUP + fault, minutes=4)
    assert len(run.lines("generations", group="g")) == len(calm.lines("generations", group="g"))
    gone_ms = run.simulation.scenario.start_ms + 60_000
    after = [line["ts_ms"] - gone_ms for line in run.lines("commits", group="g") if line["ts_ms"] > gone_ms]
    assert 2000 < after[0] < 8000, "the first commit after the election finds the new leader"
    assert len(after) > 60
