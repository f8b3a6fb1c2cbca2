"""The page is one file, holds what a trace says as text, and runs nothing else."""

import base64
import re
from hashlib import sha256
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from allotment.errors import TraceError
from allotment.trace.report._columns import gather
from allotment.trace.report._page import _MODULES, page_of

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


class Outline(HTMLParser):
    """The elements of a page, and the text of its scripts and styles."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] in ("script", "style"):
            self.texts.append((self.tags[-1], data))


def page(events=(), *, title="a trace", problems=()):
    return page_of(gather(events), title, "0.1.0", problems)


def digest(text):
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


def test_an_empty_trace_is_said_to_be_empty(leak):
    assert "This trace is empty" in page()
    assert "This trace is empty" not in page(leak)


def test_a_title_is_escaped():
    assert "<h1>&lt;b&gt;it&lt;/b&gt;</h1>" in page(title="<b>it</b>")


def test_what_looks_like_a_place_of_the_template_stays_as_it_is():
    assert "<h1>{{columns}}</h1>" in page(title="{{columns}}")


def test_problems_are_counted_and_told_escaped():
    problems = [TraceError(origin="<b>.csv", line=line, problem=f"op is {EVIL!r}") for line in range(1, 31)]
    text = page(problems=problems)

    assert "30 parts of the trace could not be read and were left out." in text
    assert "&lt;b&gt;.csv, line 20: " in text
    assert "line 21: " not in text
    assert "and 10 more" in text
    assert EVIL not in text


def test_one_problem_is_one():
    assert "1 part of the trace could not be read and was left out." in page(
        problems=[TraceError(origin="a.csv", line=3, problem="it is bad")]
    )


@pytest.mark.parametrize("part", ["title", "problem"])
def test_no_text_adds_an_element(part, leak):
    plain, evil = (
        page(leak, title=text if part == "title" else "", problems=[TraceError(origin="a", line=1, problem=text)])
        for text in ("fine", EVIL)
    )

    assert [tag for tag, _ in Outline(plain).tags] == [tag for tag, _ in Outline(evil).tags]


def test_the_policy_allows_the_page_s_own_scripts_and_style_and_nothing_to_be_loaded(leak):
    outline = Outline(page(leak))
    (policy,) = (attributes["content"] for _, attributes in outline.tags if "http-equiv" in attributes)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    run = [
        text
        for (tag, attributes), text in outline.texts
        if tag == "script" and attributes.get("type") in (None, "module")
    ]
    style = [text for (tag, _), text in outline.texts if tag == "style"]

    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == [digest(text) for text in run if text.strip()]
    assert rules["style-src"].split() == [digest(text) for text in style if text.strip()]


def test_the_page_refers_to_no_other_file(leak):
    outline = Outline(page(leak))

    assert not [attributes for _, attributes in outline.tags if {"src", "href"} & set(attributes)]
    assert not [text for (tag, _), text in outline.texts if tag == "style" and re.search(r"url\(|@import", text)]


def test_the_program_has_neither_imports_nor_exports_left(leak):
    (program,) = (
        text for (tag, each), text in Outline(page(leak)).texts if each.get("type") == "module" and text.strip()
    )

    assert not re.search(r"^(import|export)\b", program, re.MULTILINE)


def test_each_module_of_the_program_is_in_it_after_those_that_it_imports():
    folder = files("allotment.trace.report") / "page"

    assert sorted(_MODULES) == sorted(path.name[:-3] for path in folder.iterdir() if path.name.endswith(".js"))
    for place, module in enumerate(_MODULES):
        imported = re.findall(r'from "\./(\w+)\.js";', (folder / f"{module}.js").read_text("utf-8"))
        assert set(imported) <= set(_MODULES[:place])
