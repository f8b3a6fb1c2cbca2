"""Links to other hosts are such as can be right, which no network is needed to see. `python3 dev links` tries them."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = (
    *("*.md", "core/README.md", "plugins/*/README.md", "bridges/*/README.md", "examples/*/README.md", "docs/**/*.md"),
    *("core/src/**/*.py", "plugins/*/src/**/*.py", "bridges/*/src/**/*.py", "examples/*/src/**/*.py"),
)
URL = re.compile(r"https?://\w[^\s<>()\[\]{}\"'`\\|]*[\w/]")
HOST = re.compile(r"([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+(?!test|local|localhost|invalid|example)[a-z]{2,}")
NOWHERE = re.compile(r"https?://(127\.0\.0\.1|localhost|([\w.-]+\.)?example\.(com|net|org))([:/]|$)")
"""What stands for a host of the reader's own."""
OURS = re.compile(r"https://github\.com/[\w-]+/allotment/(blob|tree)/[\w.-]+/(?P<path>[^#?]+)")


def links_in(text):
    return [url for url in URL.findall(text) if not NOWHERE.match(url)]


def fault(url):
    """Return what is wrong with a link, as far as it can be seen from it; ``None`` if nothing is."""
    parts, ours = urlsplit(url), OURS.match(url)
    if parts.scheme != "https":
        return "it is not https"
    if not HOST.fullmatch(parts.netloc):
        return "this can be no host"
    if "//" in parts.path:
        return "its path has an empty step"
    if ours and not (ROOT / ours["path"]).exists():
        return "there is no such file in this repository"
    return None


def target(url):
    """Return what a link leads to, however it is spelt."""
    parts = urlsplit(url)
    path = parts.path.removesuffix("index.html").rstrip("/")
    return parts.netloc.removeprefix("www."), path.lower(), parts.query, parts.fragment


PAGES = [page for pattern in SOURCES for page in sorted(ROOT.glob(pattern)) if "_build" not in page.parts]
LINKS = sorted({url for page in PAGES for url in links_in(page.read_text(encoding="utf-8"))})


@pytest.mark.parametrize("url", LINKS)
def test_a_link_can_be_right(url):
    assert fault(url) is None


def test_one_thing_is_linked_to_in_one_way():
    assert len({target(url) for url in LINKS}) == len(LINKS), LINKS


@pytest.mark.parametrize(
    "url",
    [
        "http://docs.python.org/3/",
        "https://docs/3/",
        "https://docs.python.invalid/",
        "https://docs.python.org//3/",
        "https://github.com/somebody/allotment/blob/main/docs/nothing.md#here",
    ],
)
def test_a_link_that_cannot_be_right_is_found(url):
    assert links_in(f"See [this]({url}).") == [url]
    assert fault(url) is not None


def test_a_link_to_a_file_of_ours_and_a_host_of_the_reader_s_own_are_no_fault():
    assert fault("https://github.com/somebody/allotment/blob/main/docs/index.md") is None
    assert links_in("http://127.0.0.1:8000/metrics, https://example.org/x") == []


def test_two_spellings_of_one_link_are_found():
    assert target("https://www.pytorch.org/docs/") == target("https://pytorch.org/docs/index.html")
