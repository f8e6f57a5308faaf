"""The report: its numbers are gold's, a browser draws all of it by itself, and no name in it is obeyed."""

import re
import shutil
import subprocess
import tarfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Page

from coordinator_core.text import duration_text
from jobs.console.sequence_diagram import svg
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.times import epoch_ms
from jobs.delta.warehouse import Warehouse
from jobs.errors import JobError
from jobs.queries.answers.group_diagram import conversation_of
from jobs.queries.answers.group_verdicts import group_verdicts
from jobs.report.run import BYTES_MAX, make_report, run_report
from jobs.report.sql_text import Scope
from jobs.spark.executors import Executor
from schemas.tables import TABLES
from schemas.tables.gold import REBALANCES
from tests.conftest import PROJECT_ROOT
from tests.jobs.conftest import Recorded
from tests.jobs.hostile import FIELDS, hostile, plain, write_named
from tests.jobs.report.browser import DRAWN, LOOKS, Opened, chromium, needs_chromium, with_palette
from tests.jobs.report.large import CLUSTER as NAMED
from tests.jobs.report.tables import data_of, tables_of, values_of
from tests.jobs.silver.test_replay import CLUSTER, Jobs
from tests.lengths import is_long, takes_minutes
from tests.recorded import RECORDINGS
from tools.recordings import extract

MADE_AT: Final = datetime(2026, 1, 2, tzinfo=UTC)
AXE: Final = "axe-core@4.14.1"
SHOWN: Final = ("c01-range", "k06-migrate", "s05-limit")
"""Classic, changed to consumer midway, share."""
PICTURES: Final = {
    *("drawTimeline", "drawGroups", "drawCoverage"),
    *("drawOwners", "drawCommits", "drawMembers"),
    *("drawStates", "drawEvents", "drawCounts"),
}
RECORDED: Final = sorted(path.parent.name for path in RECORDINGS.glob("*/logs"))
"""All of them, by `make test-live`."""


@pytest.fixture(scope="module")
def report_of(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes the report of all of a recording, once."""

    def make(recording: str) -> Path:
        return made(recorded(recording), tmp_path_factory.mktemp(recording) / "report.html")

    return cache(make)


@pytest.fixture(scope="module")
def report(report_of: Callable[[str], Path]) -> Path:
    """The report of the recording that comes with the project."""
    return report_of("full-a")


@pytest.fixture(scope="module")
def warehouse(recorded: Recorded) -> Warehouse:
    """The tables of that recording."""
    return recorded("full-a")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    with chromium() as running:
        yield running


def made(warehouse: Warehouse, path: Path) -> Path:
    """A report."""
    written = run_report(warehouse, Scope(CLUSTER), output=str(path), made_at=MADE_AT)
    assert path.stat().st_size == written.size_bytes <= BYTES_MAX
    return path


class Tiles(HTMLParser):
    """The numbers at the head of each section, as {label: value}."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections: list[dict[str, str]] = []
        self._tag = self._label = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "section":
            self.sections.append({})
        if tag in ("dt", "dd", "small", "script", "style"):
            self._tag = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._tag:
            self._tag = ""

    def handle_data(self, data: str) -> None:
        if self._tag == "dt":
            self._label = data.strip()
        elif self._tag == "dd":
            self.sections[-1][self._label] = data.strip()


def test_its_numbers_are_golds(warehouse: Warehouse, report: Path) -> None:
    """What the page says at its head, read back from the file, is what the gold tables sum up to."""
    reported = Tiles(report.read_text()).sections[0]
    days, of_share = (
        warehouse.read(TABLES[f"gold.{name}"]).to_pylist() for name in ("group_summary", "share_group_summary")
    )
    unowned_ms = sum(row["unowned_likely_ms"] for row in days)
    redelivered, given_up = (sum(row[name] for row in of_share) for name in ("records_redelivered", "records_given_up"))
    assert reported == {
        "groups": reported["groups"],
        "rebalances": f"{warehouse.read(TABLES['gold.rebalances']).num_rows:,}",
        "partition time unowned": duration_text(unowned_ms),
        "commits that went back": "17",
        "records redelivered": f"{redelivered:,}",
        "records given up": f"{given_up:,}",
        "share offsets reset or deleted": "5",
        "holes in coverage": "0",
    }
    silver = warehouse.read(TABLES["silver.group_generations"], ["group_id"])["group_id"].to_pylist()
    assert int(reported["groups"]) >= len(set(silver))
    assert redelivered and given_up and unowned_ms


def test_the_worst_rebalance_of_a_group_is_drawn(warehouse: Warehouse, report: Path) -> None:
    """The page has the diagram that `history --diagram` draws of that time, as an image; all weigh little."""
    images = [b64decode(it) for it in re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', report.read_text())]
    assert len(images) >= 5
    assert sum(map(len, images)) < BYTES_MAX // 20
    rows = [row for row in warehouse.read(REBALANCES).to_pylist() if row["started_at"] and row["completed_at"]]
    worst = max(rows, key=lambda row: (row["unowned_partition_ms"] or 0, row["started_at"]))
    span = epoch_ms(worst["started_at"]), epoch_ms(worst["completed_at"]) + 1
    drawn = svg(conversation_of(ClusterTables(warehouse, CLUSTER), worst["group_id"], *span))
    assert drawn.encode() in images
    for image in images:
        assert ElementTree.fromstring(image).tag.endswith("svg")


def test_some_groups_alone(warehouse: Warehouse, tmp_path: Path) -> None:
    """Of a group that was asked for there are pictures; the numbers are its own; an unknown one is an error."""
    path = tmp_path / "one.html"
    run_report(warehouse, Scope(CLUSTER, ("c01-range",)), output=str(path), made_at=MADE_AT)
    rebalances = warehouse.read(TABLES["gold.rebalances"], ["group_id"])["group_id"].to_pylist()
    cluster, *_, group = Tiles(path.read_text()).sections
    assert cluster["groups"] == "1"
    assert cluster["rebalances"] == group["rebalances"] == str(rebalances.count("c01-range"))
    with pytest.raises(Exception, match="there is no group 'nobody'"):
        run_report(warehouse, Scope(CLUSTER, ("nobody",)), output=str(path), made_at=MADE_AT)


def test_all_groups_are_listed_by_their_score(warehouse: Warehouse, report: Path) -> None:
    """As `groups` lists them, the worst first."""
    columns = data_of(report.read_text(), "facts")["directory"]["columns"]
    [names] = [values_of(column) for column in columns if column["name"] == "group_id"]
    found = [it.group_id for it in group_verdicts(ClusterTables(warehouse, CLUSTER))]
    assert names[: len(found)] == found


def test_connectors_have_their_names(warehouse: Warehouse) -> None:
    """A connector is no partition -1; its tasks are numbered as Kafka Connect does."""
    text, _ = make_report(warehouse, Scope(CLUSTER, ("n01-connect",)), made_at=MADE_AT)
    assert data_of(text, "g0-owners-data")["data"]["partitions"] == ["snk", "snk-0", "snk-1", "src", "src-0"]


def test_nightly_writes_it_at_its_end(no_spark: Executor, tmp_path: Path) -> None:
    """Where the settings name a file: it says which, and another program learns it, too."""
    path = tmp_path / "pages" / "night.html"
    path.parent.mkdir()
    jobs = Jobs(no_spark, tmp_path / "warehouse", RECORDINGS / "codec-zstd" / "logs")
    jobs.settings = replace(jobs.settings, report_file=str(path))
    jobs.nightly()
    facts = jobs.steps.facts["report"]
    assert (facts["output"], facts["size_bytes"]) == (str(path), path.stat().st_size)
    assert facts["group_count"] >= facts["drawn_count"] >= 1
    assert jobs.text.getvalue().splitlines()[-1] == f"Report: {path}"
    assert str(tmp_path / "warehouse") in path.read_text(), "commands in it ask the same warehouse"


def test_a_file_is_replaced_as_a_whole(warehouse: Warehouse, tmp_path: Path) -> None:
    """By path or by URI: nothing is left next to it, and where it cannot be written the one before stays."""
    path = tmp_path / "report.html"
    for output in (str(path), path.as_uri()):
        path.write_text("before")
        run_report(warehouse, Scope(CLUSTER, ("c01-range",)), output=output, made_at=MADE_AT)
        assert path.read_text().startswith("<!doctype html>")
        assert list(tmp_path.iterdir()) == [path]
    for output in (f"{path}/below.html", f"{path.as_uri()}/below.html"):
        with pytest.raises(JobError, match=r"cannot be written to .*: name another place with --output"):
            run_report(warehouse, Scope(CLUSTER, ("c01-range",)), output=output, made_at=MADE_AT)
    assert path.read_text().startswith("<!doctype html>")


def test_the_same_tables_give_the_same_bytes(warehouse: Warehouse, report: Path, tmp_path: Path) -> None:
    """Nothing in it depends on the moment or the process."""
    assert made(warehouse, tmp_path / "again.html").read_bytes() == report.read_bytes()


def test_its_policy_lets_nothing_else_run(report: Path) -> None:
    """Scripts and styles by their hashes alone, and nothing from anywhere."""
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', report.read_text())
    assert found is not None
    policy = dict(
        part.strip().partition(" ")[::2] for part in found[1].replace("&#39;", "'").split(";") if part.strip()
    )
    assert policy["default-src"] == "'none'"
    for name in ("script-src", "style-src"):
        assert all(re.fullmatch(r"'sha256-[\w+/=]+'", source) for source in policy[name].split()), policy[name]
    assert "unsafe" not in found[1] and "http" not in found[1]


@pytest.fixture(scope="module")
def shown(warehouse: Warehouse, report: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page that is looked at: in `make test` of three groups, which have all kinds of pictures."""
    if is_long():
        return report
    path = tmp_path_factory.mktemp("shown") / "report.html"
    run_report(warehouse, Scope(CLUSTER, tuple(sorted(SHOWN))), output=str(path), made_at=MADE_AT)
    return path


@pytest.fixture(scope="module", params=[*LOOKS.values()], ids=[*LOOKS])
def drawn(request: pytest.FixtureRequest, browser: Browser, shown: Path) -> Iterator[Opened]:
    """The page with all its pictures drawn, at one width and in one colour scheme."""
    opened = Opened(browser, shown, *request.param)
    assert opened.draw_all() >= 12
    figures = opened.page.locator("figure.picture:not(.plain)")
    assert {*figures.evaluate_all("all => all.map(it => it.dataset.draws)")} == PICTURES
    yield opened
    opened.close()


@needs_chromium
def test_a_browser_draws_all_of_it(drawn: Opened) -> None:
    """Every picture is drawn, nothing but the file itself asked for, nothing complained of or cut off."""
    drawn.check()


@takes_minutes
@needs_chromium
@pytest.mark.parametrize("recording", RECORDED)
def test_every_recording_is_drawn(browser: Browser, report_of: Callable[[str], Path], recording: str) -> None:
    """On a phone and on a desktop: all pictures, each of which says more under the mouse and when it is zoomed."""
    for look in LOOKS.values():
        opened = Opened(browser, report_of(recording), *look)
        opened.draw_all()
        assert opened.hover_all() >= 1
        assert opened.zoom_all() >= 1
        opened.check()
        opened.close()


@needs_chromium
def test_causes_show_on_hover_and_a_interval_comes_closer(browser: Browser, shown: Path) -> None:
    """A rebalance tells its cause and how sure that is; zooming in leaves fewer of them."""
    opened = Opened(browser, shown)
    figure = opened.page.locator("section#group-1 figure.picture").first
    figure.scroll_into_view_if_needed()
    figure.locator(".js-plotly-plot .points path.point").first.wait_for(state="attached")
    figure.locator(".js-plotly-plot .points path.point").first.hover(force=True)
    text = figure.locator(".hoverlayer .hovertext").first
    text.wait_for()
    assert re.search("certain|likely|guess", text.text_content() or "", re.IGNORECASE), text.text_content()
    before = figure.locator(".reading").inner_text()
    figure.get_by_role("button", name="Zoom in").click()
    opened.page.wait_for_timeout(300)
    assert figure.locator(".reading").inner_text() != before
    assert opened.said == []
    opened.close()


WIDTHS: Final = (1400, 390)
SCHEMES: Final = ("light", "dark")
PAPER_WIDTH_MAX: Final = 718
"""A4 between Chromium's margins."""
ON_PAPER: Final = """addEventListener("beforeprint", () => {
    const plots = [...document.querySelectorAll(".js-plotly-plot .svg-container")];
    window.onPaper = [plots.map(it => it.getBoundingClientRect().width), document.documentElement.dataset.theme];
})"""
KEPT: Final = {
    "today": ("", "", 1640, ()),
    "owners": ("c01-range", "drawOwners", 516, ()),
    "deliveries": ("s05-limit", "drawStates", 649, ("Zoom in", "Zoom in", "Earlier")),
}
"""Pictures of the documentation: the group, which of its pictures, the height, and what was clicked before."""
GLANCE: Final = """async urls => {
    const images = await Promise.all(urls.map(async src => {
        const image = Object.assign(new Image(), { src });
        await image.decode();
        return image;
    }));
    const [width, height] = [images[1].width, images[1].height].map(it => Math.ceil(it / 16));
    const [kept, made] = images.map(image => {
        const context = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
        context.imageSmoothingQuality = "high";
        context.drawImage(image, 0, 0, width, height);
        return context.getImageData(0, 0, width, height).data;
    });
    return kept.filter((value, index) => Math.abs(value - made[index]) > 32).length / kept.length;
}"""
"""The share of what one sees from afar (a dot is 16 pixels wide) that differs between two images; the first may be
smaller."""
GLANCE_MAX: Final = 0.01


def differing(page: Page, *images: bytes) -> float:
    """The share of two PNG images that differs, as the browser sees them."""
    share: float = page.evaluate(GLANCE, [f"data:image/png;base64,{b64encode(it).decode()}" for it in images])
    return share


LANDED: Final = "it => { const { top } = it.getBoundingClientRect(); return top >= 0 && top < 160; }"
TOPS: Final = (
    "() => [...document.querySelectorAll('figure.picture')].map(it => it.getBoundingClientRect().top + scrollY)"
)
RANGE: Final = "it => it._fullLayout.xaxis.range.map(it._fullLayout.xaxis.r2l)"


@needs_chromium
@pytest.mark.parametrize("width", WIDTHS)
def test_links_land_where_they_point(browser: Browser, shown: Path, width: int) -> None:
    """Pictures above have their height before they are drawn: a click, and an address, show the group they name; and
    nothing has moved when all is drawn."""
    opened = Opened(browser, shown, width)
    opened.page.locator("#directory table").wait_for(state="attached")
    before = opened.page.evaluate(TOPS)
    for group_id in ("s05-limit", "c01-range", "s05-limit"):
        opened.page.locator("#directory").get_by_role("link", name=group_id, exact=True).click()
        opened.page.wait_for_timeout(400)
        assert opened.section(group_id).locator("h2").evaluate(LANDED), (width, group_id)
    opened.draw_all()
    assert opened.page.evaluate(TOPS) == pytest.approx(before, abs=2)
    opened.page.goto("about:blank")
    opened.page.goto(f"{shown.as_uri()}#group=s05-limit")
    opened.page.wait_for_timeout(1_000)
    assert opened.section("s05-limit").locator("h2").evaluate(LANDED)
    opened.close()


@needs_chromium
def test_pictures_of_one_group_share_their_time(browser: Browser, shown: Path) -> None:
    """From the start, and when one of them is zoomed."""
    opened = Opened(browser, shown)
    opened.draw_all()
    plots = opened.section("c01-range").locator(".js-plotly-plot")
    ranges = plots.evaluate_all(f"all => all.map({RANGE})")
    assert len(ranges) == 3 and ranges == [pytest.approx(ranges[0])] * 3
    opened.section("c01-range").get_by_role("button", name="Zoom in").nth(1).click()
    zoomed = plots.evaluate_all(f"all => all.map({RANGE})")
    assert zoomed == [pytest.approx(zoomed[0])] * 3
    assert zoomed[0][1] - zoomed[0][0] == pytest.approx((ranges[0][1] - ranges[0][0]) / 2, rel=0.01)
    opened.close()


@needs_chromium
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_all_is_there_when_it_is_loaded(browser: Browser, shown: Path, width: int, scheme: str) -> None:
    """The first screen says whether the list is COMPLETE; below it every picture is drawn though nobody came by, and
    looks as it does after that; on paper each is there as well, in the light, and not wider than a page."""
    opened = Opened(browser, shown, width, scheme)
    page = opened.page
    assert page.locator("figure.picture:not([data-drawn])").count() == 0
    said = page.locator(".read")
    assert said.inner_text() == "COMPLETE all of the log was read"
    assert said.evaluate("it => it.getBoundingClientRect().bottom < innerHeight")
    opened.check()
    loaded = page.screenshot(full_page=True)
    opened.draw_all()
    page.evaluate("scrollTo(0, 0)")
    assert differing(page, loaded, page.screenshot(full_page=True)) == 0
    page.evaluate(ON_PAPER)
    page.pdf()
    widths, theme = page.evaluate("window.onPaper")
    assert theme == "light" and len(widths) == page.locator(DRAWN).count() and max(widths) <= PAPER_WIDTH_MAX
    assert differing(page, loaded, page.screenshot(full_page=True)) == 0
    opened.close()


@needs_chromium
@pytest.mark.parametrize(("width", "scheme"), [(width, scheme) for width in WIDTHS for scheme in SCHEMES])
@pytest.mark.parametrize("name", KEPT)
def test_it_looks_as_the_kept_pictures_do(
    browser: Browser, warehouse: Warehouse, name: str, width: int, scheme: str, tmp_path: Path
) -> None:
    """Those of the documentation, and of a phone and the dark, as far as one sees without glasses. If it does not, the
    new one, in the folder of this test, takes the place of the kept one."""
    group_id, draws, height, clicks = KEPT[name]
    path = tmp_path / "report.html"
    run_report(warehouse, Scope(CLUSTER, (group_id,) if group_id else None), output=str(path), made_at=MADE_AT)
    opened = Opened(browser, path, width, scheme)
    figure = opened.page.locator(f"section#group-1 figure[data-draws={draws}]" if draws else "body")
    for click in clicks:
        figure.get_by_role("button", name=click).click()
    opened.page.mouse.move(0, 0)
    place = "it => { const at = it.getBoundingClientRect(); return [at.x, at.y + scrollY, at.width]; }"
    x, y, own = figure.evaluate(place)
    room = min(20, x)
    clip: Any = {"x": x - room, "y": y - room / 2, "width": own + 2 * room, "height": height}
    new = with_palette(opened.page, opened.page.screenshot(full_page=True, clip=clip))
    kept = PROJECT_ROOT / "docs" / "images" / f"{name}.png"
    if (width, scheme) != (WIDTHS[0], SCHEMES[0]):
        kept = Path(__file__).parent / "kept" / f"{name}-{width}-{scheme}.png"
    (tmp_path / kept.name).write_bytes(new)
    assert kept.exists() and differing(opened.page, kept.read_bytes(), new) < GLANCE_MAX, tmp_path / kept.name
    opened.close()


@needs_chromium
def test_a_picture_is_saved_by_one_click(browser: Browser, shown: Path, tmp_path: Path) -> None:
    """As PNG and SVG, by the name of the group and the picture, with its title and the members' names."""
    opened = Opened(browser, shown)
    figure = opened.section("c01-range").locator("figure[data-draws=drawOwners]")
    figure.scroll_into_view_if_needed()
    for kind, begin in (("PNG", b"\x89PNG"), ("SVG", b"<svg ")):
        with opened.page.expect_download() as saved:
            figure.get_by_role("button", name=f"Save as {kind}").click()
        assert saved.value.suggested_filename == f"c01-range-Rebalances-and-who-owned-what.{kind.lower()}"
        saved.value.save_as(path := tmp_path / kind)
        assert path.read_bytes().startswith(begin)
    text = (tmp_path / "SVG").read_text()
    assert "c01-range: Rebalances, and who owned what" in text and "c01-range-m4" in text
    assert (opened.said, len(opened.requests)) == ([], 1)
    opened.close()


@needs_chromium
def test_a_command_is_copied_whole(browser: Browser, shown: Path) -> None:
    """The SQL of a table, by its button."""
    opened = Opened(browser, shown)
    opened.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    code = opened.page.locator("figure#coverage details.sql")
    opened.page.evaluate("document.querySelectorAll('#coverage details').forEach(it => { it.open = true })")
    code.get_by_role("button", name="Copy").click()
    code.get_by_role("button", name="Copied").wait_for()
    copied = opened.page.evaluate("navigator.clipboard.readText()")
    assert copied == code.locator("code").text_content() and copied.startswith("select topic")
    opened.close()


@pytest.fixture(scope="module")
def axe() -> str:
    """The source of axe-core, from npm at the first call."""
    path = PROJECT_ROOT / ".cache" / AXE / "package" / "axe.min.js"
    if not path.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("no npm for axe-core")
        folder = path.parents[1]
        folder.mkdir(parents=True, exist_ok=True)
        packed = subprocess.run([npm, "pack", "--silent", AXE], cwd=folder, capture_output=True, text=True, check=False)
        if packed.returncode:
            pytest.skip(f"npm gave no {AXE}")
        with tarfile.open(folder / packed.stdout.strip()) as archive:
            extract(archive, folder)
    return path.read_text()


@needs_chromium
def test_everybody_can_read_it(drawn: Opened, axe: str) -> None:
    """axe-core finds nothing serious, contrast included, with every table open."""
    page = drawn.page
    page.evaluate("document.querySelectorAll('details').forEach(it => { it.open = true })")
    page.wait_for_timeout(500)
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    reported = [f"{it['impact']}: {it['id']}: {it['nodes'][0]['html'][:200]}" for it in found]
    assert [line for line in reported if line.startswith(("serious", "critical"))] == []


def fields_shown(text: str, name_of: Callable[[str, int], str]) -> set[str]:
    """Fields of which all names are in the tables of a report, in a column of that field."""
    seen: dict[str, set[Any]] = {field: set() for field in FIELDS}
    for table in tables_of(text):
        for index, column in enumerate(table.columns):
            if column in seen:
                seen[column].update(row[index] for row in table.rows)
    return {field for field in FIELDS if seen[field] >= {name_of(field, number) for number in range(200)}}


@needs_chromium
def test_names_are_never_obeyed(browser: Browser, tmp_path: Path) -> None:
    """200 hostile texts in each of eight fields: no script runs, nothing is asked for, and the page has the elements
    that plain names give it. (Metadata of commits is in no picture, so it cannot be in the page at all.)"""
    counts = []
    for name_of in (plain, hostile):
        folder = tmp_path / name_of.__name__
        warehouse = write_named(folder / "warehouse", name_of)
        text, _ = make_report(warehouse, Scope(NAMED), made_at=MADE_AT)
        assert fields_shown(text, name_of) == {*FIELDS} - {"metadata"}
        (folder / "report.html").write_text(text)
        opened = Opened(browser, folder / "report.html")
        opened.draw_all()
        opened.page.evaluate("document.querySelectorAll('details').forEach(it => { it.open = true })")
        opened.page.wait_for_timeout(500)
        opened.hover_all()
        tags = "[...document.querySelectorAll('body *')].filter(it => !it.closest('svg')).map(it => it.tagName)"
        found = opened.page.evaluate(tags)
        linked = "document.querySelectorAll('svg a, svg image:not([href^=data])').length"
        counts.append({tag: found.count(tag) for tag in sorted(set(found))})
        assert opened.page.evaluate("window.obeyed") is None
        assert opened.page.evaluate(linked) == 0
        assert (opened.said, len(opened.requests)) == ([], 1), name_of.__name__
        opened.close()
    assert counts[0] == counts[1]
