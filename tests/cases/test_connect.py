"""Kafka Connect: assignments tell what changes (KIP-415). What a worker has is what it ran, less what was revoked, and
what was assigned."""

from datetime import datetime
from pathlib import Path
from typing import Any, Final

from coordinator_core.bytes.client_protocols import (
    ConnectAssignment,
    ConnectMetadata,
)
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.replay.lookup import key_partition
from tests.cases.client_logs import FIRST_MS, Client, Generation, batches_of
from tests.cases.harness import Ledger
from tests.cases.judged import Judged
from tests.connect_bytes import encode_connect_assignment, encode_connect_metadata
from tests.coordinator_core.inference.group_nights import after_nights
from tests.recorded import RECORDINGS

Tasks = tuple[tuple[str, tuple[int, ...]], ...]

NOTHING: Final[Tasks] = ()
ALL: Final[Tasks] = (("src", (-1, 0, 1)),)
HALF: Final[Tasks] = (("src", (-1, 0)),)
OTHER_HALF: Final[Tasks] = (("src", (1,)),)


def worker(
    ran: Tasks | None,
    assigned: Tasks = NOTHING,
    revoked: Tasks = NOTHING,
    *,
    config_offset: int = 4,
    version: int = 2,
    **more: Any,
) -> Client:
    """A worker that ran so much when it joined (None: it had no assignment), and what it is assigned."""
    allocation = None if ran is None else ConnectAssignment(version, 0, "w1", "u", config_offset, ran)
    metadata = ConnectMetadata(version, "http://w:8083/", config_offset, allocation if version else None)
    assignment = ConnectAssignment(version, 0, "w1", "u", config_offset, assigned, revoked, **more)
    return Client(encode_connect_metadata(metadata), encode_connect_assignment(assignment), "connect-1")


def generation(number: int, second: float, workers: dict[str, Client], protocol: str = "sessioned") -> Generation:
    """A generation of workers, its record 10 ms after its join phase ended."""
    return Generation(number, workers, int(second * 1000), protocol, "connect", joined_ms=10)


HISTORY: Final = (
    generation(1, 0, {"w1": worker(None, config_offset=-1)}),
    generation(2, 10, {"w1": worker(NOTHING, ALL)}),
    # a second worker comes: one task is revoked, then handed on
    generation(3, 20, {"w1": worker(ALL, revoked=OTHER_HALF), "w2": worker(None)}),
    generation(4, 20.5, {"w1": worker(HALF), "w2": worker(NOTHING, OTHER_HALF)}),
    # it goes: the leader waits for it, and then assigns what it had
    generation(5, 60, {"w1": worker(HALF, delay_ms=30_000)}),
    generation(6, 90.2, {"w1": worker(HALF, OTHER_HALF)}),
    # nothing of this, and nobody knows why
    generation(7, 200, {"w1": worker(ALL)}),
    # a connector more, and then newer configs alone
    generation(8, 300, {"w1": worker(ALL, (("snk", (-1, 0)),), config_offset=9)}),
    generation(9, 400, {"w1": worker((*ALL, ("snk", (-1, 0))), config_offset=11)}),
)

CAUSES: Final = {
    1: ("FIRST", "FIRST_GENERATION", "CERTAIN"),
    2: ("PARTITIONS_CHANGED", "CONNECTORS_CHANGED", "LIKELY"),
    3: ("MEMBER_JOINED", "IN_LOG", "CERTAIN"),
    4: ("MEMBER_JOINED", "COOPERATIVE_FOLLOW_UP", "LIKELY"),
    7: ("UNKNOWN", "NO_EVIDENCE", "GUESS"),
    8: ("PARTITIONS_CHANGED", "CONNECTORS_CHANGED", "LIKELY"),
    9: ("PARTITIONS_CHANGED", "CONFIGS_CHANGED", "GUESS"),
}

OWNERS: Final = [
    ("snk", -1, "w1", 300.0, None, None),
    ("snk", 0, "w1", 300.0, None, None),
    ("src", -1, "w1", 10.0, None, None),
    ("src", 0, "w1", 10.0, None, None),
    ("src", 1, "w1", 10.0, 20.0, None),
    ("src", 1, "w1", 90.2, None, 30_200),
    ("src", 1, "w2", 20.5, 60.0, 500),
]


def owners(ledger: Ledger | Judged) -> list[tuple[Any, ...]]:
    """Who ran what, in seconds of the log, with the gap before."""

    def second(at: datetime | None) -> float | None:
        return None if at is None else round(at.timestamp() - FIRST_MS / 1000, 3)

    return sorted(
        (
            row["topic"],
            row["partition"],
            row["member_id"],
            second(row["valid_from"]),
            second(row["valid_to"]),
            row["gap_before_ms"],
        )
        for row in ledger.rows("gold.partition_owners")
    )


def causes(ledger: Ledger | Judged) -> dict[int, tuple[str, str, str]]:
    """Cause, method and confidence of each generation."""
    rows = ledger.rows("gold.rebalances")
    return {row["to_generation"]: (row["cause"], row["method"], row["confidence"]) for row in rows}


def test_owners_and_causes_of_incremental_assignments(judged: Judged) -> None:
    """What is kept is owned on; what is revoked has no owner until it is handed on, nor what a worker had that went
    until the leader has waited for it. However nights are cut: what a worker ran is in its own metadata."""
    batches = batches_of("connect", HISTORY)
    judged.night(batches)
    assert owners(judged) == OWNERS
    found = causes(judged)
    assert {number: found[number] for number in CAUSES} == CAUSES
    assert found[6][:2] == (found[5][0], "CONNECT_DELAY_OVER")
    assert {row["partitions_total"] for row in judged.rows("gold.rebalances") if row["to_generation"] == 5} == {2}
    assert not judged.rows("gold.log_anomalies")
    for cuts in ((3,), (1, 4, 5, 8)):
        after_nights(batches, cuts, InferenceSettings())


def test_eager_workers_have_what_they_are_assigned(judged: Judged) -> None:
    """Protocol version 0 assigns everything again in each generation."""
    generations = [
        generation(1, 0, {"w1": worker(None, ALL, version=0)}, "default"),
        generation(2, 10, {"w1": worker(None, HALF, version=0), "w2": worker(None, OTHER_HALF, version=0)}, "default"),
    ]
    judged.night(batches_of("eager", generations))
    assert [row[:4] for row in owners(judged)] == [
        ("src", -1, "w1", 0.0),
        ("src", 0, "w1", 0.0),
        ("src", 1, "w1", 0.0),
        ("src", 1, "w2", 10.0),
    ]


def test_a_worker_that_lost_everything_has_what_it_is_assigned() -> None:
    """One that left the group for long comes without an assignment, and its metadata say so; one that the
    leader left out goes on with what it ran."""
    from coordinator_core.bytes.client_protocols import read_connect

    lost = worker(None, HALF)
    assert read_connect(lost.assignment, lost.subscription).assigned == HALF
    left_out = worker(ALL)
    assert read_connect(b"", left_out.subscription).assigned == ALL


def test_what_cannot_be_read_is_not_nothing() -> None:
    """Neither of the assignment nor, where that tells what changes, of the metadata."""
    from coordinator_core.bytes.client_protocols import read_connect

    good = worker(ALL)
    assert read_connect(b"\x00\x02x", good.subscription).assigned is None
    assert read_connect(good.assignment, b"\x00").assigned is None
    assert read_connect(good.assignment, good.subscription[:-3]).assigned is None


RECORDED: Final = [
    ("snk", -1, "w1", 4, 5),
    ("snk", -1, "w1", 9, 9),
    ("snk", -1, "w2", 7, 7),
    ("snk", 0, "w1", 5, 5),
    ("snk", 0, "w1", 9, 9),
    ("snk", 0, "w2", 7, 7),
    ("snk", 1, "w1", 5, 9),
    ("src", -1, "w1", 2, 9),
    ("src", 0, "w1", 3, 9),
]
"""Connector, task, worker, first and last generation: what each real worker said it ran when it joined the next one."""


def test_the_workers_of_the_recording(ledger: Ledger, tmp_path: Path) -> None:
    """Two connectors on two real workers: one worker comes, is handed two tasks by a second rebalance, and goes; the
    leader waits a second for it."""
    logs = RECORDINGS / "full-a" / "logs"
    count = len(list(logs.glob("__consumer_offsets-*")))
    folder = f"__consumer_offsets-{key_partition('n01-connect', count)}"
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / folder).symlink_to(logs / folder)
    ledger.night(tmp_path / "logs")
    owned = sorted(
        (row["topic"], row["partition"], row["client_id"][-2:], row["from_generation"], row["to_generation"])
        for row in ledger.rows("gold.partition_owners")
        if row["group_id"] == "n01-connect"
    )
    assert owned == RECORDED
    rows = [row for row in ledger.rows("gold.rebalances") if row["group_id"] == "n01-connect"]
    methods = {row["to_generation"]: row["method"] for row in rows}
    assert {methods[number] for number in (2, 3, 4, 5)} == {"CONNECTORS_CHANGED"}
    assert (methods[7], methods[9]) == ("COOPERATIVE_FOLLOW_UP", "CONNECT_DELAY_OVER")
    assert "SUBSCRIPTION_CHANGED" not in {cause for row in rows for cause in row["causes"]}
    assert sum(row["unowned_partition_ms"] for row in rows) == 2 * 431 + 2 * 1_006
