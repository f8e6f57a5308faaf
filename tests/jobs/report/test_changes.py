"""What changed since the last report: what is new, gone, worse, better, and since when."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from jobs.errors import JobError
from jobs.queries.answers.group_verdicts import IN_STORM, REPEATED, WENT_BACK
from jobs.report.changes import Known, Snapshot, changes, cluster_of, earlier, text_of
from jobs.report.run import make_report, run_report
from jobs.report.sql_text import Scope
from schemas.tables.bronze import COVERAGE
from schemas.tables.gold import REBALANCES
from tests.jobs.report.large import CLUSTER, START_MS, Size, Tables, write_large

MADE_AT: Final = datetime(2026, 1, 2, tzinfo=UTC)
OK: Final = Known("OK", None, {})


def snapshot(newest_ms: int = 1, *, has_all: bool = True, **groups: Known) -> Snapshot:
    """Of one cluster."""
    return Snapshot("c", f"made {newest_ms}", newest_ms, groups, has_all)


def warn(since_ms: int, *rules: str) -> Known:
    """A group that needs somebody."""
    return Known("WARN", since_ms, dict.fromkeys(rules or (IN_STORM,), 1))


def test_what_changed() -> None:
    """By verdict, then by rule; who needed somebody before did so since then."""
    before = snapshot(a=OK, b=warn(5), c=warn(5), d=warn(5, IN_STORM, WENT_BACK), e=OK, left=warn(3))
    now = snapshot(2, a=warn(9), b=warn(9), c=Known("STALLED", 9, {REPEATED: 1}), d=warn(9), e=OK, came=OK, hot=warn(9))
    found = changes(before, now)
    assert (found.worse, found.better) == (("c", "a"), ("d",))
    assert (found.new, found.gone) == (("hot", "came"), ("left",))
    assert found.since_ms == {"b": 5, "c": 5, "d": 5}


def test_of_too_many_groups_none_is_called_new_or_gone() -> None:
    """A snapshot that names only those that need somebody: who is not there was well."""
    found = changes(snapshot(has_all=False, b=warn(5)), snapshot(2, a=warn(9), c=OK))
    assert (found.worse, found.better, found.new, found.gone) == (("a",), ("b",), (), ())


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A file with a snapshot that was compared with an older one."""
    path = tmp_path / "report.html"
    text = text_of(snapshot(2, a=OK), snapshot(1, b=warn(5)))
    path.write_text(f'<!doctype html><script type="application/json" id="snapshot">{text}</script>')
    return path


def test_a_report_made_again_is_compared_with_the_same(page: Path) -> None:
    """One of the same records is no earlier one; what it was compared with is."""
    for place in (str(page), page.as_uri()):
        assert earlier(place, snapshot(3)) == snapshot(2, a=OK)
        assert earlier(place, snapshot(2)) == snapshot(1, b=warn(5))
        assert earlier(place, snapshot(1)) is None
        assert cluster_of(place) == "c"
    assert earlier(str(page), Snapshot("other", "", 3, {})) is None


@pytest.mark.parametrize(
    "text", ["", "<html>", '<script type="application/json" id="snapshot">"AAAA"</script>', "\udcff"]
)
def test_another_file_is_no_report(tmp_path: Path, text: str) -> None:
    """Nor is none, nor a folder: nothing is compared, and nothing raised."""
    path = tmp_path / "file.html"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    for place in (str(path), str(tmp_path), str(tmp_path / "none"), "file:///none/at/all"):
        assert (earlier(place, snapshot(3)), cluster_of(place)) == (None, None)


def storm(tables: Tables, at_ms: int) -> None:
    """A group is in a storm at a time up to which the log is read."""
    captured: Mapping[str, object] = {
        **{"topic": "__consumer_offsets", "partition": 77, "from_offset": 0, "to_offset": 99, "kind": "CAPTURED"},
        **{
            "first_timestamp": np.array([START_MS]),
            "last_timestamp": np.array([at_ms]),
            "observed_at": np.array([at_ms]),
        },
    }
    tables.add(COVERAGE, 1, captured)
    group = {"group_id": "group-00001", "group_type": "CONSUMER", "incarnation": 0, "log_partition": 1}
    rebalance = {"to_generation": 9, "in_storm": True, "cause": "MEMBER_JOINED", "started_at": np.array([at_ms])}
    tables.add(REBALANCES, 1, {**group, **rebalance})


def test_the_page_says_it(tmp_path: Path) -> None:
    """A report that replaces one says what is worse since; made once more it says the same; one elsewhere compares with
    the one that it is given."""
    root, path = tmp_path / "warehouse", tmp_path / "report.html"
    warehouse = write_large(root, Size(2, 20, 5, 1, 20))
    run_report(warehouse, Scope(CLUSTER), output=str(path), made_at=MADE_AT)
    assert "There is no earlier report" in path.read_text()
    (tmp_path / "first.html").write_bytes(path.read_bytes())
    later = Tables(root)
    later._versions = dict.fromkeys((COVERAGE.full_name, REBALANCES.full_name), 100)
    storm(later, START_MS + 50_000_000)
    pages = []
    for output, previous in (("report.html", None), ("report.html", None), ("new.html", "first.html")):
        run_report(
            warehouse,
            Scope(CLUSTER),
            output=str(tmp_path / output),
            made_at=MADE_AT,
            previous=previous and str(tmp_path / previous),
        )
        pages.append((tmp_path / output).read_text())
    assert pages == [pages[0]] * 3
    said = " ".join(pages[0].split())
    assert '<dt>worse <span class="count">1</span></dt><dd><a href="#group=group-00001">group-00001</a>' in said
    assert "made 2026-01-02T00:00:00.000Z" in said
    with pytest.raises(JobError, match=r"is no report of cluster large to compare with"):
        run_report(warehouse, Scope(CLUSTER), output=str(path), made_at=MADE_AT, previous=str(tmp_path / "none.html"))


def test_the_report_of_another_cluster_is_not_replaced(tmp_path: Path) -> None:
    """Two clusters of one setting would write over each other: it says what to do."""
    warehouse = write_large(tmp_path / "warehouse", Size(2, 20, 5, 1, 20))
    path = tmp_path / "report.html"
    text = text_of(snapshot(2, a=OK), None)
    path.write_text(f'<script type="application/json" id="snapshot">{text}</script>')
    with pytest.raises(JobError, match=r"is the report of cluster c, .* or one with \{cluster_id\} in its name"):
        run_report(warehouse, Scope(CLUSTER), output=str(path), made_at=MADE_AT)


def test_a_report_of_the_past_says_nothing_of_today(tmp_path: Path) -> None:
    """And is compared with none."""
    warehouse = write_large(tmp_path / "warehouse", Size(2, 20, 5, 1, 20))
    text, _ = make_report(warehouse, Scope(CLUSTER, None, None, START_MS + 60_000), made_at=MADE_AT)
    assert "This report is of a time in the past" in text and "Needs somebody today" not in text
