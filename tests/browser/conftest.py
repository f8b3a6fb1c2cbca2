"""A headless Chromium without a network."""

import shutil

import pytest

from allotment.trace import write_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="session")
def chromium():
    """Return a running browser; the tests that need it are skipped, with the reason, where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no Chromium is installed: none of {', '.join(BROWSERS)} was found")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


class ReportPage:
    """A report in the browser, as a person meets it."""

    def __init__(self, page):
        self.page = page
        self.requests, self.errors = [], []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("dialog", lambda dialog: (self.errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def open(self, path):
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("#state", state="hidden")

    @property
    def timeline(self):
        return self.page.locator("#timeline")

    @property
    def moment(self):
        """The number of events that have happened at the chosen moment."""
        return int(self.timeline.get_attribute("aria-valuenow"))

    @property
    def plot(self):
        """The place of the plot on the page: x, y, width, height."""
        return self.page.locator("#timeline .u-over").bounding_box()

    def click_at(self, part):
        """Click the plot at a part of its width."""
        box = self.plot
        self.page.mouse.click(box["x"] + part * box["width"], box["y"] + box["height"] / 2)
        self.settle()

    def press(self, *keys):
        self.timeline.focus()
        for key in keys:
            self.page.keyboard.press(key)
        self.settle()

    def settle(self):
        """Wait until what was asked for is drawn, which is at most a frame later."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def show(self, tab):
        self.page.get_by_role("tab", name=tab).click()
        self.settle()

    def click(self, selector, **options):
        self.page.locator(selector, **options).click()
        self.settle()

    def column(self, title):
        """Return the texts of a column of the table that is shown, after asking for all of its rows."""
        more = self.page.locator("#panel .more")
        while more.count() and more.is_visible():
            more.click()
        titles = self.page.locator("#panel th").all_text_contents()
        return self.page.locator(f"#panel tbody td:nth-child({titles.index(title) + 1})").all_text_contents()

    def live_blocks(self):
        """Return the numbers of the blocks that the panel of the live set shows, in its order."""
        return [int(text.replace(",", "")) for text in self.column("Block")]

    def filter(self, text):
        self.page.get_by_role("searchbox", name="Filter").fill(text)
        self.page.wait_for_function(
            "(wanted) => (document.getElementById('filtered').textContent !== '') === wanted", arg=bool(text)
        )
        self.settle()

    def pixels_of(self, red, green, blue):
        """Return how many pixels of the plot have just this colour."""
        return self.page.evaluate(
            """([red, green, blue]) => {
                const canvas = document.querySelector("#timeline canvas");
                const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
                let count = 0;
                for (let i = 0; i < data.length; i += 4)
                    if (data[i] === red && data[i + 1] === green && data[i + 2] === blue) count++;
                return count;
            }""",
            [red, green, blue],
        )

    def swatches(self):
        """Return the colour of each group that the legend names."""
        return self.page.evaluate(
            """() => Object.fromEntries([...document.querySelectorAll("#legend button")].map((button) => [
                button.querySelector(".name").textContent,
                getComputedStyle(button.querySelector(".swatch")).backgroundColor.match(/\\d+/g).map(Number),
            ]))"""
        )


@pytest.fixture
def browser_page(chromium):
    """Return a page of a browser that is offline; errors of its program, and requests, fail the test at its end."""
    context = chromium.new_context(viewport={"width": 1360, "height": 1000}, offline=True)
    page = ReportPage(context.new_page())
    yield page
    context.close()
    assert page.errors == []
    assert [url for url in page.requests if not url.startswith("file:")] == []
    assert len(page.requests) <= 1  # the page itself


@pytest.fixture
def show(browser_page, tmp_path):
    """Return what shows a trace in the browser."""

    def open_report(events, **options):
        browser_page.open(write_report(events, tmp_path / "report.html", **options).path)
        return browser_page

    return open_report
