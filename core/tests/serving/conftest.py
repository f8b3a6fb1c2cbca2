"""What tests of serving need: a folder for sockets, other processes, and requests of both kinds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from textwrap import dedent
from urllib.request import Request, urlopen

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from allotment.serving._service import open_services

PATIENCE = 60


@pytest.fixture(autouse=True)
def runtime_folder(monkeypatch):
    """A runtime folder of the test's own, with a path short enough for a socket; nothing may be left open or in it."""
    folder = Path(tempfile.mkdtemp(prefix="al-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder / "allotment"
    left = open_services()
    for service in left:
        service.close()
    shutil.rmtree(folder)
    assert not left


@pytest.fixture
def scrape(get):
    """Return a function that fetches metrics and returns the samples as {(name, device, allocator): value}."""

    def fetch(server):
        text = get(server.url).read().decode()
        families = list(text_string_to_metric_families(text))
        return {
            (sample.name, sample.labels.get("device"), sample.labels.get("allocator")): sample.value
            for family in families
            for sample in family.samples
        }

    return fetch


@pytest.fixture
def get():
    """Return a function that asks a server over HTTP."""
    return lambda url, **headers: urlopen(Request(url, headers=headers), timeout=PATIENCE)


@pytest.fixture
def child():
    """Return a function that starts a script in a Python of its own; it is ready when it has printed a line."""
    started = []

    def start(script, **environment):
        process = subprocess.Popen(
            [sys.executable, "-c", dedent(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n", process.communicate(timeout=PATIENCE)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=PATIENCE)


@pytest.fixture
def end():
    """Return a function that lets a child go on to its end, and returns what it printed on the way."""
    return lambda process: process.communicate("\n", timeout=PATIENCE)
