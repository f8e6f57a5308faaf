"""The simulated exchange and a real one: what clients and a broker of Kafka 4.3.1 say, from the broker's request log.

Real and simulated lives differ in their times, so they are compared step by step: after each answer of an API, which
request comes next, and how it is answered.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final

from schemas.error_codes import ErrorCode
from simulator.simulation.exchange import Watch
from tests.lengths import takes_minutes
from tests.live.broker import CLIENT_SETTINGS, LiveBroker
from tests.live.clients import LiveClients
from tests.live.kafka_home import KafkaHome
from tests.simulator.simulation.simulations import run_file

Step = tuple[str, str]
"""The API as the request log names it, and the error of the answer."""

OF_GROUPS: Final = frozenset(
    {
        "FIND_COORDINATOR",
        "JOIN_GROUP",
        "SYNC_GROUP",
        "HEARTBEAT",
        "LEAVE_GROUP",
        "OFFSET_FETCH",
        "OFFSET_COMMIT",
        "CONSUMER_GROUP_HEARTBEAT",
        "SHARE_GROUP_HEARTBEAT",
        "SHARE_FETCH",
        "SHARE_ACKNOWLEDGE",
    }
)
KINDS: Final = (
    "classic-range",
    "classic-cooperative",
    "classic-static",
    "classic-roundrobin",
    "classic-sticky",
    "consumer-uniform",
    "consumer-range",
    "consumer-static",
)
ACTS: Final = ("join", "consume", "grow", "leave", "join", "resubscribe", "crash", "settle")
SHARE_ACTS: Final = ("join", "accept", "mix", "release", "hold", "leave", "settle")
SIMULATED: Final = (
    ("story-join", None),
    ("story-heartbeats", None),
    ("story-coordinator", None),
    ("story-share", None),
    ("story-refusals", None),
    ("slow-member", None),
    ("share-poison", 10),
    ("share-admin", 10),
    ("bad-day", 22),
    ("consumer-protocol", 10),
    ("rolling-deploy", 12),
)
"""Scenario, and its minutes."""
DIFFERENT: Final[Mapping[str, str]] = {
    "OFFSET_FETCH NONE, OFFSET_COMMIT NONE": "the live clients commit by themselves at once, not after an interval",
    "HEARTBEAT NONE, JOIN_GROUP NONE": "for the same reason they do not commit before they join again",
    "SHARE_ACKNOWLEDGE 121": "INVALID_RECORD_STATE: the live clients acknowledge what they hold after its lock",
    "INVALID_SHARE_SESSION_EPOCH": "a live client that was closed in a fetch opens its session twice",
    "SHARE_SESSION_NOT_FOUND": "the same",
}
"""Words of a step that only real clients make -> why."""


@takes_minutes
def test_real_clients_ask_what_simulated_ones_ask(home: KafkaHome, tmp_path: Path) -> None:
    """Every step of a real client is one that simulated clients make, but for those with a reason; and every field of
    a simulated request is in the real request."""
    broker_folder = tmp_path / "broker"
    with (
        LiveBroker(home, broker_folder, settings=CLIENT_SETTINGS) as broker,
        LiveClients(home, tmp_path / "clients", broker.address) as clients,
    ):
        # topics that were just created answer as they come: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR
        clients.play(1, kinds=["classic-range", "share"], acts=["join", "settle"])
        broker.set_config("BROKER_LOGGER", "1", {"kafka.request.logger": "DEBUG"})
        clients.play(7, kinds=KINDS, acts=ACTS)
        clients.play(8, kinds=["share"], acts=SHARE_ACTS)
    real = list(completed_requests(broker_folder / "broker.log"))
    simulated = [
        line
        for name, minutes in SIMULATED
        for line in run_file(name, minutes=minutes, watch=Watch()).lines("requests")
        if line["client_id"] is not None
    ]
    real_steps = steps(("", it["requestHeader"]["clientId"], _real_step(it)) for it in real)
    known = steps((line["group"], line["client_id"], _simulated_step(line)) for line in _in_order(simulated))
    others = [step for step in real_steps if step not in known]
    named = [", ".join(map(" ".join, step)) for step in others]
    assert [words for words in named if not any(part in words for part in DIFFERENT)] == []
    assert len(real_steps) > 20
    fields: dict[str, set[str]] = {}
    for it in real:
        fields.setdefault(it["requestHeader"]["requestApiKeyName"], set()).update(it["request"] or ())
    for line in simulated:
        api = log_name(line["api"])
        if api in fields:
            assert set(line["request"]) <= fields[api] | {"topics"}, api


def completed_requests(log: Path) -> Iterator[dict[str, Any]]:
    """Requests about groups in a broker's log (`kafka.request.logger`), in the order of their answers."""
    for found in re.finditer(r"Completed request:\s*(\{.*\})$", log.read_text(errors="replace"), re.MULTILINE):
        request: dict[str, Any] = json.loads(found[1])
        if request["requestHeader"]["requestApiKeyName"] in OF_GROUPS:
            yield request


def steps(said: Iterable[tuple[str, str, Step]]) -> set[tuple[Step, Step]]:
    """What each client asked next; the same step again is no other one."""
    by_client: dict[tuple[str, str], list[Step]] = {}
    for group_id, client_id, step in said:
        by_client.setdefault((group_id, client_id), []).append(step)
    return {pair for own in by_client.values() for pair in pairwise(step for step, _ in groupby(own))}


def log_name(api: str) -> str:
    """`JoinGroup` as the request log has it: JOIN_GROUP."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", api).upper()


def _in_order(lines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for line in sorted(lines, key=lambda line: (line["asked_ms"], line["number"])):
        if log_name(line["api"]) in OF_GROUPS and line["error"] is not None:
            yield line


def _simulated_step(line: Mapping[str, Any]) -> Step:
    return log_name(line["api"]), line["error"]


def _real_step(request: Mapping[str, Any]) -> Step:
    code = error_of(request["response"])
    name = next((known.name for known in ErrorCode if known == code), str(code))
    return request["requestHeader"]["requestApiKeyName"], name


def error_of(response: Any) -> int:
    """The error of the whole, or the first one of a part."""
    if isinstance(response, dict):
        own = response.get("errorCode") or 0
        return own or next((code for part in response.values() if (code := error_of(part))), 0)
    if isinstance(response, list):
        return next((code for part in response if (code := error_of(part))), 0)
    return 0
