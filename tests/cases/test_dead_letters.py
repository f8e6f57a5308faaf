"""Dead letter topics (KIP-1191) in the log of a Kafka 4.4 broker: what was copied, refused, and counted once."""

import io
import json
from collections import Counter
from pathlib import Path

import pytest

from coordinator_core.bytes.log.batch import Record, build_batch
from jobs.cli_enums import Listing
from jobs.queries.answers.audit_payload import run_payload
from jobs.queries.answers.audit_report import Span, listed
from jobs.queries.answers.dead_letters import CAUSE_OF_MESSAGE
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from tests.cases.harness import CASES, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.jobs.queries.answers.test_payload import segment

LOGS = CASES / "kafka-4.4" / "logs"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """One night over the broker's log."""
    found = Ledger(tmp_path_factory.mktemp("warehouse"))
    found.night(LOGS)
    return found


def test_a_record_is_archiving_and_then_archived(ledger: Ledger) -> None:
    """Each offset that a broker copies has a transition of each kind, and one row in gold, of the first."""
    kinds: dict[str, Counter[str]] = {"ARCHIVING": Counter(), "ARCHIVED": Counter()}
    for row in ledger.rows("silver.share_batch_transitions"):
        if row["kind"] in kinds:
            assert row["to_state"] == row["kind"]
            kinds[row["kind"]][row["group_id"]] += row["last_offset"] - row["first_offset"] + 1
    assert kinds["ARCHIVING"] == kinds["ARCHIVED"]
    assert set(kinds["ARCHIVED"]) == {"d01-dlq-reject", "d02-dlq-limit", "d03-dlq-refused", "d04-dlq-lock"}
    given_up: Counter[str] = Counter()
    for row in ledger.rows("gold.archived_records"):
        given_up[row["group_id"]] += row["last_offset"] - row["first_offset"] + 1
    assert given_up == kinds["ARCHIVED"]


def test_state_3_is_no_gap(ledger: Ledger) -> None:
    """What was rejected is REJECTED, CERTAIN; what reached the limit may have been rejected then."""
    found = {
        (row["group_id"], row["cause"], row["likely_cause"], row["method"], row["confidence"])
        for row in ledger.rows("gold.archived_records")
        if row["group_id"] in {"d01-dlq-reject", "d03-dlq-refused"}
    }
    assert found == {
        (group_id, "REJECT_OR_GAP", "REJECTED", "ARCHIVING_STATE", "CERTAIN")
        for group_id in ("d01-dlq-reject", "d03-dlq-refused")
    }


def test_what_was_not_copied_is_a_list_of_its_own(ledger: Ledger) -> None:
    """The dead letter topic of one group is not enabled for groups: its records were archived without a copy."""
    states = {(row["group_id"], row["dead_letter"]) for row in ledger.rows("gold.archived_records")}
    assert states == {
        ("d01-dlq-reject", "TRIED"),
        ("d02-dlq-limit", "TRIED"),
        ("d03-dlq-refused", "REFUSED"),
        ("d04-dlq-lock", "TRIED"),
    }
    names, rows = listed(ledger.tables, None, Listing.WITHOUT_COPY, Span())
    assert {row[names.index("group_id")] for row in rows} == {"d03-dlq-refused"}


def copy(place: int, group_id: str, topic: str, partition: int, offset: int, message: str) -> Record:
    """A dead letter as a broker writes it."""
    headers = {
        "topic": topic,
        "partition": str(partition),
        "offset": str(offset),
        "group": group_id,
        "delivery.count": "1",
        "message": message,
    }
    reported = tuple((f"__dlq.errors.{name}", value.encode()) for name, value in headers.items())
    return Record(place, 1_700_000_000_000, None, None, reported)


def payload(ledger: Ledger, folder: Path, **options: object) -> list[dict[str, object]]:
    """The rows of `audit --payload`."""
    out = io.StringIO()
    options = {"group_ids": None, "sources": [str(folder)], "output_format": "json", "out": out, **options}
    run_payload(ledger.tables, span=Span(), **options)  # type: ignore[arg-type]
    return [json.loads(line) for line in out.getvalue().splitlines()[1:]]


def test_a_copy_settles_the_cause(ledger: Ledger, tmp_path: Path) -> None:
    """A copy's message says rejected or limit, CERTAIN; none comes any more where ARCHIVING has ended."""
    given_up = [row for row in ledger.rows("gold.archived_records") if row["group_id"] == "d02-dlq-limit"]
    copied, other, *_ = sorted((row["partition"], row["first_offset"]) for row in given_up)
    limit = "Offset delivery count exceeded the threshold."
    letters = [copy(0, "d02-dlq-limit", "d02-dlq-limit", *copied, limit)]
    segment(tmp_path, "dlq.d02-dlq-limit", 0, 0, [build_batch(letters)])
    segment(tmp_path, "d02-dlq-limit", 0, 0, [build_batch([Record(0, 0, None, b"", ())])])
    rows = {
        (row["group_id"], row["partition"], row["offset"]): row
        for row in payload(ledger, tmp_path, dead_letter_topics=["dlq.d02-dlq-limit"])
    }
    found = rows["d02-dlq-limit", *copied]
    assert (found["dead_letter"], found["dead_letter_place"]) == ("FOUND", "dlq.d02-dlq-limit-0:0")
    assert (found["likely_cause"], found["confidence"]) == ("DELIVERY_LIMIT", "CERTAIN")
    assert found["dead_letter_message"] == limit
    assert rows["d02-dlq-limit", *other]["dead_letter"] == "MISSING"
    assert {row["dead_letter"] for (group_id, *_), row in rows.items() if group_id == "d03-dlq-refused"} == {"REFUSED"}
    assert "NOT_YET" not in {row["dead_letter"] for row in rows.values()}
    without = payload(ledger, tmp_path, dead_letter_topics=["dlq.d02-dlq-limit"], without_copy=True)
    assert len(without) == len(rows) - 1


def test_a_copy_of_a_record_that_was_given_up_twice(tmp_path: Path) -> None:
    """An admin set the offset back, and it was given up again: one copy does not say which time it is of."""
    twice, log = Ledger(tmp_path / "warehouse"), SmallLog(0, SHARE_TOPIC)
    log.snapshot("g", NOON_MS, ((0, 9, 0, 1),), snapshot_epoch=0)
    log.snapshot("g", NOON_MS + 1_000, ((0, 9, 4, 1),), snapshot_epoch=1)
    log.snapshot("g", NOON_MS + 2_000, (), snapshot_epoch=2)
    log.snapshot("g", NOON_MS + 3_000, ((0, 9, 4, 1),), snapshot_epoch=3)
    twice.night(log.write(tmp_path / "logs"))
    assert len(twice.rows("gold.archived_records")) == 2
    topic = twice.rows("gold.archived_records")[0]["topic"] or ""
    rejected = next(message for message, cause in CAUSE_OF_MESSAGE.items() if cause == "REJECTED")
    segment(tmp_path / "topics", "dlq", 0, 0, [build_batch([copy(0, "g", topic, 0, 5, rejected)])])
    rows = payload(twice, tmp_path / "topics", dead_letter_topics=["dlq"])
    found = [row for row in rows if row["offset"] == 5]
    assert [row["dead_letter_message"] for row in found] == [rejected, rejected]
    assert [row["likely_cause"] for row in found] == [None, None]


def test_nights_give_the_same_rows_as_one(ledger: Ledger, tmp_path: Path) -> None:
    """A record that is ARCHIVING at the end of a night is given up once all the same."""
    nights = Ledger(tmp_path / "warehouse")
    for number, share_of in enumerate((0.4, 0.7, 1.0), 1):
        folder = tmp_path / f"logs-{number}"
        for log in sorted(LOGS.glob("*/*.log")):
            target = folder / log.parent.name / log.name
            target.parent.mkdir(parents=True)
            data = log.read_bytes()
            whole = "__share_group_state" not in log.parent.name
            target.write_bytes(data if whole else data[: int(len(data) * share_of)])
        nights.night(folder, number=number)
    for name in ("gold.archived_records", "gold.redeliveries", "silver.share_batch_transitions"):
        once, cut = (
            sorted(repr({k: v for k, v in row.items() if k != "is_settled"}) for row in found.rows(name))
            for found in (ledger, nights)
        )
        assert once == cut, name
