"""Pages in a browser: errors, clusters, and what would happen if a text were not escaped. No script runs, nothing is
asked for."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Error, Page

from coordinator_core.history import groups as history
from jobs.report.index import ClusterLine, index_page
from jobs.report.run import make_report
from jobs.report.sql_text import Scope
from tests.cases.harness import CLUSTER_ID, FIRST_NIGHT, Ledger
from tests.cases.small_logs import NOON_MS, SmallLog
from tests.jobs.hostile import HOSTILE, SCRIPT, TEXTS
from tests.jobs.report.browser import Opened, chromium, needs_chromium

TAKEN: Final = "http://127.0.0.1:9/taken"
LEAKS: Final = (
    f"<img src={TAKEN}>",
    f"<img srcset='{TAKEN} 2x'>",
    f"<link rel=stylesheet href={TAKEN}>",
    f"<link rel=preload as=script href={TAKEN}>",
    f"<link rel=icon href={TAKEN}>",
    f"<script src={TAKEN}></script>",
    f"<script type=module>import '{TAKEN}'</script>",
    f"<iframe src={TAKEN}></iframe>",
    f"<object data={TAKEN}></object>",
    f"<embed src={TAKEN}>",
    f"<video autoplay src={TAKEN} poster={TAKEN}></video>",
    f"<audio autoplay src={TAKEN}></audio>",
    f"<style>@import '{TAKEN}'; body {{ background: url({TAKEN}) }}</style>",
    f"<b style='background: url({TAKEN})'>b</b>",
    f"<svg><image href={TAKEN} /><use href={TAKEN}#a /></svg>",
    f"<base href={TAKEN}/><img src=x>",
    f"<form id=f action={TAKEN}></form><input form=f autofocus onfocus='f.submit()'>",
    f"<input type=image src={TAKEN}>",
    f"<body background={TAKEN} onload={SCRIPT}>",
    f"<details open ontoggle={SCRIPT}>",
)
"""What would fetch something, or run, as soon as it is in a page."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of groups that could not be replayed in the second night, each for an error with a hostile text."""
    folder = tmp_path_factory.mktemp("failing")
    log = SmallLog()

    def failing(_: Any, step: Any) -> Any:
        raise KeyError(TEXTS[step.log_offset % len(TEXTS)])

    def generations(generation: int) -> Path:
        for number in range(len(TEXTS)):
            log.generation(f"g{number}", generation, {f"m{number}": (0,)}, NOON_MS)
        return log.write(folder / "logs")

    ledger = Ledger(folder / "warehouse")
    ledger.night(generations(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history.GroupHistory, "apply", failing)
        night = ledger.night(generations(2), number=2)
    assert night.text.count("could not be replayed: group g") >= 5
    text, _ = make_report(ledger.warehouse, Scope(CLUSTER_ID), made_at=FIRST_NIGHT)
    return text


def test_errors_are_not_in_the_page(page: str) -> None:
    """What could not be replayed is said by the night and by describe; the page has no text of an error."""
    assert "g49" in page and "KeyError" not in page


@needs_chromium
def test_names_of_clusters_are_never_obeyed(browser: Browser, tmp_path: Path) -> None:
    """In the index of reports: as the name, in the reason, and in the address of the report."""
    lines = [ClusterLine(text, "whole", True, text, 1, 1, 1, 1, 1, text, text.replace("/", "_")) for text in HOSTILE]
    path = tmp_path / "clusters.html"
    path.write_text(index_page(lines, "now"))
    opened = Opened(browser, path)
    opened.page.wait_for_timeout(500)
    for link in opened.page.locator("a[href^=javascript]").all():
        link.click()
    assert opened.page.evaluate("window.obeyed") is None
    assert [url for url in opened.requests if not url.startswith("data:")] == [path.as_uri()]
    assert opened.page.locator("tbody tr").count() == len(HOSTILE)
    opened.close()


@pytest.fixture
def taken() -> Iterator[tuple[str, list[str]]]:
    """A server elsewhere: its address, and what it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Not on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def is_obeyed(page: Page) -> bool:
    """Whether a text ran. One that sends the page elsewhere may do so while this asks."""
    try:
        return bool(page.evaluate("window.obeyed"))
    except Error as error:
        assert "navigation" in error.message
        return True


@needs_chromium
@pytest.mark.parametrize("of", ["index", "report", "report without a policy"])
def test_its_policy_stops_what_was_not_escaped(
    browser: Browser, page: str, taken: tuple[str, list[str]], tmp_path: Path, of: str
) -> None:
    """All hostile texts as they are, in the body of a page: the policy alone lets none of them run or ask another
    server; without it they do."""
    address, asked = taken
    text = index_page([], "now") if of == "index" else page
    has_policy = of != "report without a policy"
    if not has_policy:
        text = text.replace("Content-Security-Policy", "no-policy")
    head, _, _ = text.partition("<main")
    obeyed = []
    for number, hostile in enumerate((*TEXTS, *LEAKS)):
        path = tmp_path / f"{number}.html"
        injected = hostile.replace("http://127.0.0.1:9", address)
        path.write_text(f"{head}<div>{injected}</div>", encoding="utf-8")
        opened = Opened(browser, path)
        opened.page.wait_for_timeout(50)
        if is_obeyed(opened.page):
            obeyed.append(hostile)
        opened.close()
    if has_policy:
        assert (obeyed, asked) == ([], [])
    else:
        assert len(obeyed) > 5 and len(asked) > 10, "the texts do nothing by themselves"
