"""Random clusters whose logs are seen as users have them (`log_views`), judged by the simulator's truth: what gold
calls CERTAIN is never wrong, nor is what has no confidence; LIKELY is right at least 19 times in 20; and COMPLETE is
never said of a time of which records are missing.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from jobs.bronze.log_ends import log_ends
from jobs.laboratory.simulate import simulate
from jobs.queries.answers.audit_report import Span, completeness
from jobs.queries.as_of.as_of import GROUPS_LOG, SHARES_LOG
from tests.cases.harness import Ledger
from tests.cases.log_views import KINDS, View, read_logs, view_of
from tests.cases.random_clusters import scenario_text
from tests.cases.scenario_truth import (
    ABORTED,
    SEEDS,
    UNWRITTEN,
    aborted,
    assert_right,
    claimed_causes,
    claimed_end,
    claimed_hand_backs,
    ms,
    places,
    true_ends,
)
from tests.cases.view_truth import TrueRecord, ViewTruth, missing_records
from tests.claims import Claim
from tests.scenarios import Scenario

UNSAID: Final = "NO CONFIDENCE"
"""Of columns without a confidence: they are what the log says."""
FIRST_SEEN: Final = frozenset({"FIRST_SEEN", "FIRST_SNAPSHOT"})
"""Methods of what was there when the log begins: it has no time of its own."""
ODD_COMMITS: Final = frozenset({"REWIND", "EMPTY_GROUP_RESET"})

Row = Mapping[str, Any]


class Judge:
    """What gold claims of one view, and whether it is true."""

    def __init__(self, life: Scenario, truth: ViewTruth, ledger: Ledger, captured: Mapping[str, set[int]]) -> None:
        self._life, self._truth, self._ledger, self._captured = life, truth, ledger, captured

    def claims(self, random: Random) -> Iterator[Claim]:
        """All of them."""
        yield from self._causes()
        yield from self._owners()
        yield from self._archived()
        timed = (row for row in self._rows("gold.redeliveries") if row["at"] and row["method"] not in FIRST_SEEN)
        yield from claimed_hand_backs(self._life, timed, is_whole=False)
        yield from self._commits()
        for row in self._rows("gold.log_anomalies"):
            if row["category"] == "COORDINATOR":  # no coordinator broke a rule
                yield Claim(row["rule"], row["method"], row["confidence"], (row["group_id"], row["details"]), False)
        for log in (GROUPS_LOG, SHARES_LOG):
            yield from self._complete(log, random)

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        """Rows that have a time, with the names of their topics."""
        for row in self._ledger.rows(name):
            topic_id = row.get("topic_id")
            yield row | ({"topic": self._truth.topics[topic_id]} if topic_id and not row["topic"] else {})

    def _causes(self) -> Iterator[Claim]:
        missing: dict[int, int] = {}
        """By log partition: where the last part that is missing begins; 0: only a beginning is missing."""
        for row in self._rows("bronze.coverage"):
            if row["topic"] == GROUPS_LOG and row["kind"] == "MISSING":
                missing[row["partition"]] = max(missing.get(row["partition"], 0), row["from_offset"])
        for row in self._rows("gold.rebalances"):
            if row["method"] in FIRST_SEEN:
                continue
            group, at = row["group_id"], row["started_at"]
            true = self._truth.generation(group, row["to_generation"], None if at is None else ms(at))
            place = (group, row["from_generation"], row["to_generation"], true)
            if true is None:
                yield Claim("", row["method"], UNSAID, place, False)
                continue
            is_shown = all(it.offset in self._captured[it.log] for it in self._truth.members_at(group, true.log_offset))
            lack = true.member_count - row["member_count"]
            if is_shown or row["group_type"] == "CLASSIC":
                yield Claim("member_count", "", UNSAID, place, lack == 0)
            elif missing.get(row["log_partition"]) == 0:
                yield Claim("member_count", "", UNSAID, place, lack >= 0)
            since = self._truth.reasons_between(group, row["from_generation"] or 0, true)
            # what happened in generations that are missing counts, too
            yield from claimed_causes(row, (*place, since), true.reasons, less_sure=since)

    def _owners(self) -> Iterator[Claim]:
        """Intervals, up to where a record of the group or of the member is missing."""
        ends: dict[int, int] = {}
        missing: dict[tuple[str, str], list[TrueRecord]] = defaultdict(list)
        for it in self._truth.records[GROUPS_LOG]:
            if it.offset in self._captured[it.log]:
                log_partition = int(it.log.rpartition("-")[2])
                ends[log_partition] = max(ends.get(log_partition, 0), it.at_ms)
            elif it.state_of is not None:
                missing[it.state_of].append(it)
        for row in self._rows("gold.partition_owners"):
            has_ended_sometime = row["valid_to"] is None and row["to_log_offset"] is not None
            if row["group_type"] == "STREAMS" or row["valid_from"] is None or has_ended_sometime:
                continue
            to_ms = ends[row["log_partition"]] if row["valid_to"] is None else ms(row["valid_to"])
            begin, end = row["from_log_offset"], row["to_log_offset"]
            group, member_id = row["group_id"], row["member_id"]
            unread = [it.at_ms for it in missing[group, ""] + missing[group, member_id] if it.offset > begin]
            owner = group, row["topic"], row["partition"], member_id
            wrong_ms = self._truth.unowned_ms(owner, ms(row["valid_from"]), min([to_ms, *unread]))
            yield Claim("owner", "", UNSAID, (*owner, begin, end, wrong_ms), wrong_ms <= 0)

    def _archived(self) -> Iterator[Claim]:
        why, is_aborted = true_ends(self._life), aborted(self._life)
        done = {
            (line["group"], line["topic"], line["partition"], offset)
            for line in self._life.truth("share_writes")
            for first, last, state, _ in line["state_batches"]
            for offset in range(first, last + 1)
            if state == "ACKNOWLEDGED"
        }
        for row in self._rows("gold.archived_records"):
            for place in places(row, row["group_id"]):
                if place in why or row["likely_cause"] == ABORTED:
                    yield from claimed_end(row, place, why.get(place, ABORTED if is_aborted(place) else ""))
                else:
                    is_true = row["cause"] in UNWRITTEN and place not in done
                    yield Claim(row["cause"], row["method"], row["confidence"], place, is_true)

    def _commits(self) -> Iterator[Claim]:
        for row in self._rows("gold.commit_anomalies"):
            log_place = row["log_partition"], row["log_offset"]
            true = self._truth.commits.get(log_place)
            offsets = row["from_offset"], row["to_offset"]
            place = (row["group_id"], row["topic"], row["partition"], *log_place, *offsets, true)
            claim = partial(Claim, row["kind"], row["method"], row["confidence"], place)
            at_ms = None if row["at"] is None else ms(row["at"])
            if row["kind"] == "DELETED" and row["likely_cause"] is not None:
                why = self._truth.why_deleted.get(log_place)
                yield claim(row["likely_cause"] == why)._replace(cause=f"DELETED {row['likely_cause']}")
            elif row["kind"] == "ABORTED":
                yield claim(true is not None and true.outcome == "ABORTED")
            elif row["kind"] in ODD_COMMITS:
                is_applied = true is not None and true.outcome == "APPLIED" and true.value == row["to_offset"]
                is_same = row["confidence"] != "CERTAIN" or (true is not None and true.before == row["from_offset"])
                yield claim(is_applied and is_same)
            if at_ms is not None and row["was_group_empty"] is not None:
                is_true = row["was_group_empty"] in self._truth.may_be_empty(row["group_id"], at_ms)
                yield Claim("was_group_empty", "", UNSAID, (*place, row["was_group_empty"]), is_true)
            if at_ms is not None and row["owner_member_id"] and row["group_type"] != "STREAMS":
                owner = row["group_id"], row["topic"], row["partition"], row["owner_member_id"]
                is_true = any(begin <= at_ms <= end for begin, end in self._truth.owners.get(owner, ()))
                yield Claim("owner_member_id", "", UNSAID, (*place, row["owner_member_id"]), is_true)

    def _complete(self, log: str, random: Random) -> Iterator[Claim]:
        records = self._truth.records[log]
        if not records:
            return
        missing = missing_records(self._truth, log, self._captured)
        times = sorted(it.at_ms for it in records)
        bounded = [Span(*sorted(random.sample(range(times[0] - 1_000, times[-1] + 2_000), 2))) for _ in range(6)]
        for span in (Span(), Span(None, random.choice(times)), Span(random.choice(times), None), *bounded):
            found = completeness(self._ledger.tables, log, span)
            if found.is_complete:
                from_ms, to_ms = span.from_ms or 0, span.to_ms
                if to_ms is None:
                    to_ms = log_ends(self._ledger.tables, (log,))[log].proven_ms or 0
                unread = [it for it in missing if from_ms <= it.at_ms < to_ms]
                yield Claim("COMPLETE", log, "CERTAIN", (span, found.statements[0], *unread[:2]), not unread)


def seen(life: Scenario, seed: int, kind: str) -> tuple[ViewTruth, Ledger, View]:
    """The nights over a view of a simulated cluster."""
    logs = read_logs(life.folder / "logs")
    view = view_of(seed, kind, logs, life.root / "view")
    ledger = Ledger(life.root / "warehouse")
    for number, sources in enumerate(view.nights, 1):
        ledger.night(number=number, **sources)
    return ViewTruth(life, logs), ledger, view


def test_gold_is_true_of_damaged_logs(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Whatever cleaners, retention and copying took, and whatever the nights read of it."""

    def claims(seed: int) -> Iterator[Claim]:
        life = Scenario(f"view-{seed}", tmp_path / str(seed))
        life.root.mkdir()
        file = life.root / "scenario.toml"
        file.write_text(scenario_text(seed), encoding="utf-8")
        simulate(str(file), str(life.folder))
        truth, ledger, view = seen(life, seed, KINDS[seed % len(KINDS)])
        yield from Judge(life, truth, ledger, view.captured).claims(Random(seed))

    assert_right(claims, SEEDS, "random views", ("CERTAIN", UNSAID), request.node)
