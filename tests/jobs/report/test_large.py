"""A report of more than a page can show one by one: what is large is counted together, nothing of it is lost, and
every detail is a zoom or a report of a shorter span of time away.

In `make test` a thousandth of it; `make test-live` has 1,000 partitions over 10,000 rebalances and 2,500 groups.
"""

import resource
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from playwright.sync_api import Browser

from jobs.report.reader import Limits
from jobs.report.run import BYTES_MAX, Written, make_report
from jobs.report.sql_text import Scope
from tests.jobs.report.browser import LOOKS, Opened, chromium, needs_chromium
from tests.jobs.report.large import BUSY, CLUSTER, SHARE, Size, write_large
from tests.lengths import is_long, takes_minutes

MADE_AT: Final = datetime(2026, 1, 2, tzinfo=UTC)
SIZE: Final = Size() if is_long() else Size(60, 1_500, 300, 3, 3_000)
LIMITS: Final = (
    Limits()
    if is_long()
    else Limits(
        interval_count=20_000,
        batch_count=2_000,
        mark_count=1_000,
        row_count=100,
        rebalance_count=500,
        overview_count=200,
    )
)
PAINT_MS_MAX: Final = 1_000 if is_long() else 5_000
"""In `make test` other tests run at the same time."""
SECONDS_MAX: Final = 240 if is_long() else 30


class Made(NamedTuple):
    """A report, and what it took."""

    path: Path
    written: Written
    seconds: float


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The report of all groups."""
    folder = tmp_path_factory.mktemp("large")
    warehouse = write_large(folder / "warehouse", SIZE)
    started = time.perf_counter()
    text, written = make_report(warehouse, Scope(CLUSTER), made_at=MADE_AT, limits=LIMITS)
    seconds = time.perf_counter() - started
    path = folder / "report.html"
    path.write_text(text)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{SIZE}: {written.size_bytes:,} bytes in {seconds:.1f} s, at most {peak / 1024:,.0f} MiB")
    return Made(path, written, seconds)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    with chromium() as running:
        yield running


def test_it_fits(large: Made) -> None:
    """Eight megabytes hold it, in a time in which one can wait for it."""
    assert large.written.size_bytes <= BYTES_MAX
    assert large.written.group_count == SIZE.group_count + 2
    assert large.seconds < SECONDS_MAX


@needs_chromium
@pytest.mark.parametrize("look", LOOKS)
def test_any_group_is_found_by_its_name(browser: Browser, large: Made, look: str) -> None:
    """With the keyboard alone: `/`, two keys, Enter; one without pictures says what is known of it and which command
    draws it; and the page is painted before all that is read."""
    opened = Opened(browser, large.path, *LOOKS[look])
    page = opened.page
    page.locator("#directory table").wait_for(state="attached")
    paint = "performance.getEntriesByType('paint').map(it => it.startTime)"
    assert 0 < min(page.evaluate(paint)) < PAINT_MS_MAX
    for typed, group_id in (("os", BUSY), ("17", "group-00017"), ("re", SHARE)):
        page.keyboard.press("/")
        page.keyboard.type(typed)
        assert page.locator("#found li[aria-selected=true] .name").inner_text() == group_id
        page.keyboard.press("Enter")
        page.locator("dialog").wait_for(state="hidden")
        assert page.evaluate("location.hash") == f"#group={group_id}"
    page.keyboard.press("/")
    page.keyboard.type("group-00001")
    page.keyboard.press("Enter")
    shown = page.locator("#one-group")
    shown.wait_for()
    draws = "./spark-submit.sh report --output report-of-group.html --group group-00001"
    assert shown.locator("code").inner_text() == draws
    assert opened.said == [] and len(opened.requests) == 1
    opened.close()


@needs_chromium
def test_the_search_opens_again_before_the_page_is_painted(browser: Browser, large: Made) -> None:
    """A key right after Enter opens it: the field of the closed dialog still has the focus then."""
    opened = Opened(browser, large.path, *LOOKS["desktop"])
    opened.page.locator("#directory table").wait_for(state="attached")
    is_open = opened.page.evaluate(
        """() => {
          const press = (at, key) => {
            at.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
          };
          const wanted = document.getElementById("wanted");
          press(document.body, "/");
          press(wanted, "Enter");
          press(wanted, "/");
          return document.getElementById("finder").open;
        }"""
    )
    assert is_open
    opened.close()


@takes_minutes
@needs_chromium
@pytest.mark.parametrize("look", LOOKS)
def test_all_of_it_is_counted(browser: Browser, large: Made, look: str) -> None:
    """The busy group's and the share group's pictures count every rebalance, commit anomaly and given up record; a cell
    of what is counted together comes closer at a click, until single owners are to be seen."""
    opened = Opened(browser, large.path, *LOOKS[look])
    opened.draw_all()
    readings = {name: " ".join(opened.section(name).locator(".reading").all_inner_texts()) for name in (BUSY, SHARE)}
    assert f"{SIZE.rebalance_count:,} rebalances" in readings[BUSY]
    assert f"{2 * SIZE.rebalance_count:,} commit anomalies" in readings[BUSY]
    lost = len(range(0, SIZE.delivery_count, 70)) * 5 * SIZE.share_partition_count
    assert f"{lost:,} records given up" in readings[SHARE]
    owners = opened.section(BUSY).locator("figure.picture").first
    assert "Counted together" in owners.locator(".reading").inner_text()
    for _ in range(12):
        if "Counted together" not in owners.locator(".reading").inner_text():
            break
        owners.get_by_role("button", name="Zoom in").click()
    assert "Counted together" not in owners.locator(".reading").inner_text()
    assert owners.locator(".barlayer path").count() >= SIZE.partition_count
    opened.check()
    opened.close()
