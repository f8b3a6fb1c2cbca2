"""What a page shows is true: its code runs, its output is what comes out, its links lead somewhere."""

from __future__ import annotations

import ast
import importlib.util
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


examples = load(Path(__file__).with_name("examples.py"))
PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in examples.PAGES]
TRIED_HERE = [page for page in PAGES if page.values[0] not in examples.TRIED_ELSEWHERE]


@pytest.mark.parametrize("page", TRIED_HERE)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page):
    with ThreadPoolExecutor(1) as thread:  # where no event loop of another test runs
        thread.submit(examples.try_page, page).result()


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_is_of_a_kind_that_is_tried(page):
    known = ("python", "console", "toml", *examples.NOT_TRIED)

    assert [language for language in examples.languages_of(page) if not language.startswith(known)] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_links_to_files_that_exist(page):
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


def layers():
    """Return the rooms of core as the architecture test has them."""
    tree = ast.parse((ROOT / "tests/architecture/test_layout.py").read_text())
    (value,) = (node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "LAYERS")
    return ast.literal_eval(value)


def test_the_page_on_architecture_has_every_room_that_exists_in_its_table():
    page = (ROOT / "docs/explanation/architecture.md").read_text()
    cells = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `")]
    modules = {path.stem for path in (ROOT / "core/src/allotment").iterdir()}

    assert set().union(*layers()) & modules <= {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
