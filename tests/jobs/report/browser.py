"""Pages in Debian's Chromium: what they draw, what they say, what they ask for."""

import shutil
import struct
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, sync_playwright

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
LOOKS: Final = {"phone": (390, "dark"), "desktop": (1440, "light")}
"""Width in pixels, and colour scheme."""
TIMEOUT_MS: Final = 20_000
DRAWN: Final = "figure.picture .js-plotly-plot"
CUT_OFF: Final = """[
    ...[...document.querySelectorAll('.controls')].filter(it => it.scrollWidth > it.clientWidth + 1),
    ...[...document.querySelectorAll('.js-plotly-plot text')].filter(it => !it.closest('[clip-path]')).filter(it => {
        const [box, plot] = [it, it.closest('.js-plotly-plot')].map(of => of.getBoundingClientRect());
        return box.width > 0 && (box.left < plot.left - 1 || box.right > plot.right + 1);
    }),
    ...[...document.querySelectorAll('.js-plotly-plot .legend')].filter(it => {
        const others = ['.scrollbar', '.nsewdrag'].map(of => it.closest('.js-plotly-plot').querySelector(of));
        const [legend, bar, area] = [it, ...others].map(of => of?.getBoundingClientRect());
        return bar?.height > 1 || (area && legend.bottom > area.top + 1 && legend.right > area.left);
    }),
].map(it => it.textContent)"""
"""Controls, legends and texts of charts that one would have to scroll for, or cannot see at all, and legends over bars.
Of what zooming moved out of an area, Plotly clips the texts, too."""


COLOURS_MAX: Final = 256
"""Of an image with a palette: its pixels are bytes."""
PIXELS: Final = """async src => {
    const image = Object.assign(new Image(), { src });
    await image.decode();
    const { width, height } = image;
    const context = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
    context.drawImage(image, 0, 0);
    const all = context.getImageData(0, 0, width, height).data;
    const texts = [];
    for (let at = 0; at < all.length; at += 32768) texts.push(String.fromCharCode(...all.subarray(at, at + 32768)));
    return [width, height, btoa(texts.join(""))];
}"""


def with_palette(page: Page, png: bytes) -> bytes:
    """A PNG image of a third of the size: each pixel has the nearest of the colours that are used most."""
    width, height, text = page.evaluate(PIXELS, f"data:image/png;base64,{b64encode(png).decode()}")
    pixels = np.frombuffer(b64decode(text), np.uint8).reshape(-1, 4)[:, :3]
    colours, places, counts = np.unique(pixels, axis=0, return_inverse=True, return_counts=True)
    palette = colours[np.argsort(-counts, kind="stable")[:COLOURS_MAX]]
    nearest = [((palette.astype(int) - colour) ** 2).sum(axis=1).argmin() for colour in colours]
    rows = np.array(nearest, np.uint8)[places].reshape(height, width)
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0),
        b"PLTE": palette.tobytes(),
        b"IDAT": zlib.compress(np.pad(rows, ((0, 0), (1, 0))).tobytes(), 9),  # each row begins with a 0: no filter
        b"IEND": b"",
    }
    written = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


def needs_chromium(test: Any) -> Any:
    """Mark a test that opens a page: of the part of real brokers and clusters, skipped where there is no Chromium."""
    is_missing = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt install chromium")
    return pytest.mark.conformance(is_missing(test))


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser, while it runs."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


class Opened:
    """A page of the browser, and what it did that it should not."""

    def __init__(self, browser: Browser, path: Path, width: int = 1440, scheme: Any = "light") -> None:
        self.path, self.width = path, width
        self.said: list[str] = []
        self.requests: list[str] = []
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        context.set_default_timeout(TIMEOUT_MS)
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def draw_all(self) -> int:
        """Scroll to each picture until it is drawn; how many there are."""
        figures = self.page.locator("figure.picture").all()
        for figure in figures:
            figure.scroll_into_view_if_needed()
            self.page.locator(f"#{figure.get_attribute('id')}[data-drawn]").wait_for(state="attached")
        self.page.wait_for_timeout(200)
        return len(figures)

    def section(self, group_id: str) -> Locator:
        """The part of the page that is about a group."""
        return self.page.locator("main section").filter(has=self.page.locator("h2 .group", has_text=group_id))

    def check(self) -> None:
        """Every picture is drawn, the file alone asked for, nothing complained of, and nothing wider than the page."""
        figures = self.page.locator("figure.picture:not(.plain)").count()
        traces = self.page.evaluate(f"[...document.querySelectorAll('{DRAWN}')].map(it => it.data.length)")
        assert len(traces) == figures
        assert self.page.evaluate("document.documentElement.scrollWidth") <= self.width
        assert self.page.evaluate(CUT_OFF) == []
        assert not self.said, self.said
        assert self.requests == [self.path.as_uri()], self.requests

    def hover_all(self) -> int:
        """Put the mouse on something in each picture, if there is anything to put it on: it says what that is. How many
        pictures did."""
        return sum(self._hover(figure) for figure in self.page.locator("figure.picture").all())

    @staticmethod
    def _hover(figure: Locator) -> bool:
        marks = figure.locator(".points path")
        seen = marks.evaluate_all(
            """all => all.findIndex(it => {
                const box = it.getBoundingClientRect();
                return box.width > 1 && box.height > 1;
            })"""
        )
        if seen < 0:
            return False
        # near its upper end, since a bar of a log scale goes down for ever; in the middle of what the picture shows of
        # it, since what is still open goes on beyond; in the middle of the window, where nothing that sticks to the
        # page lies over it
        x, y = marks.nth(seen).evaluate(
            """it => {
                const place = () => {
                    const box = it.getBoundingClientRect(), picture = it.closest("svg").getBoundingClientRect();
                    const [left, right] = [Math.max(box.left, picture.left), Math.min(box.right, picture.right)];
                    return [(left + right) / 2, box.y + Math.min(box.height / 2, 8)];
                };
                window.scrollBy({top: place()[1] - window.innerHeight / 2, behavior: "instant"});
                return place();
            }"""
        )
        figure.page.mouse.move(x, y)
        figure.locator(".hoverlayer .hovertext").first.wait_for()
        return True

    def zoom_all(self) -> int:
        """Come closer in each picture that has a time: it then shows half of it. How many pictures did."""
        zooming = 0
        for figure in self.page.locator("figure.picture").all():
            button = figure.get_by_role("button", name="Zoom in")
            if button.count():
                before = self._span_ms(figure)
                button.click()
                after = self._span_ms(figure)
                assert after == pytest.approx(before / 2, rel=0.01)
                zooming += 1
        return zooming

    @staticmethod
    def _span_ms(figure: Locator) -> float:
        span: float = figure.locator(".js-plotly-plot").evaluate(
            "it => { const [from, to] = it._fullLayout.xaxis.range.map(it._fullLayout.xaxis.r2l); return to - from; }"
        )
        return span

    def close(self) -> None:
        """Close the page, with all that belongs to it."""
        self.page.context.close()
