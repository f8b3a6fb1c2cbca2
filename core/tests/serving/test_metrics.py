"""The endpoint of metrics, asked over real sockets."""

from __future__ import annotations

import gzip
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.error import HTTPError, URLError

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as older_families

import allotment as al

PATIENCE = 60
FORKING = ("-W", "ignore::DeprecationWarning")
"""Since 3.12, Python warns of a fork of a process with threads, which a process that serves is."""
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def test_the_figures_of_every_allocator_are_there_under_the_names_that_openmetrics_wants(sim, scrape):
    arrays = [al.empty(100, device="cuda:1"), al.empty(50, device="cpu")]
    with al.serve_metrics(0) as server:
        found = scrape(server)
    statistics = al.memory_stats()["cuda:1"]["mempool"]
    place = ("cuda:1", "mempool")

    for name in ("current", "peak", "reserved", "peak_reserved"):
        assert found[f"allotment_memory_{name}_bytes", *place] == getattr(statistics, name)
    for name in ("allocations", "frees", "failed_allocations", "failed_frees"):
        assert found[f"allotment_{name}_total", *place] == getattr(statistics, name)
    assert found["allotment_memory_current_bytes", "cpu", "host"] == 400
    assert found["allotment_device_memory_free_bytes", "cuda:1", None] == sim.memory_info(1).free
    assert ("allotment_device_memory_free_bytes", "cuda:0", None) not in found
    assert found["allotment_device_memory_size_bytes", "cuda:0", None] == sim.memory_info(0).total
    del arrays


def test_units_and_types_are_declared(sim, get):
    array = al.empty(100)
    with al.serve_metrics(0) as server:
        answer = get(server.url)
        families = {each.name: each for each in text_string_to_metric_families(answer.read().decode())}

    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert all(each.unit == "bytes" for name, each in families.items() if "memory" in name)
    assert families["allotment_memory_current_bytes"].type == "gauge"
    assert families["allotment_allocations"].type == "counter"
    assert families["allotment"].samples[0].labels["platform"] == "sim:2xh200"
    del array


def test_each_scrape_reads_the_accounts_anew(sim, scrape):
    with al.serve_metrics(0) as server:
        assert ("allotment_memory_current_bytes", "cuda:0", "mempool") not in scrape(server)
        array = al.empty(100)
        assert scrape(server)["allotment_memory_current_bytes", "cuda:0", "mempool"] == 800
        del array
        assert scrape(server)["allotment_memory_current_bytes", "cuda:0", "mempool"] == 0


def test_who_asks_for_the_older_format_gets_it(sim, get):
    with al.serve_metrics(0) as server:
        answer = get(server.url, Accept="text/plain;version=0.0.4")
        names = {each.name for each in older_families(answer.read().decode())}

    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "allotment_memory_current_bytes" in names


def test_an_answer_is_compressed_for_who_takes_it(sim, get):
    with al.serve_metrics(0) as server:
        answer = get(server.url, **{"Accept-Encoding": "gzip"})

        assert gzip.decompress(answer.read()).endswith(b"# EOF\n")


def test_there_is_nothing_else_to_get(sim, get):
    with al.serve_metrics(0) as server:
        with pytest.raises(HTTPError) as caught:
            get(server.url.replace("/metrics", "/secrets"))
        caught.value.close()

    assert caught.value.code == 404


def test_an_allocator_that_cannot_tell_its_figures_is_told_as_such(sim, scrape):
    class Silent:
        allocate = staticmethod(sim.malloc)
        reset_peak_reservation = reservation = staticmethod(lambda: 1 / 0)

        def deallocate(self, ptr, size_in_bytes):
            sim.free(ptr)

    with al.ScopedAllocator("cuda:0", Silent()):
        array = al.empty(100)
    with al.serve_metrics(0) as server:
        found = scrape(server)

    assert found["allotment_allocator_readable", "cuda:0", "Silent"] == 0
    assert ("allotment_memory_current_bytes", "cuda:0", "Silent") not in found
    del array


def test_many_may_scrape_while_others_allocate(sim, scrape, get):
    with al.serve_metrics(0) as server, ThreadPoolExecutor(4) as pool:
        scrapes = [pool.submit(scrape, server) for _ in range(8)]
        for _ in range(300):
            al.empty(10)
        counts = [
            each.result(PATIENCE).get(("allotment_allocations_total", "cuda:0", "mempool"), 0) for each in scrapes
        ]

    assert all(0 <= count <= 300 for count in counts)


def test_a_scrape_in_the_middle_of_a_capture_leaves_it_alone(sim, scrape):
    array = al.empty(100)
    with al.serve_metrics(0) as server:
        with al.ScopedCapture(capture_mode=al.CaptureMode.GLOBAL) as capture:
            array.fill_(3)
            found = scrape(server)
        al.capture_launch(capture.graph)

    assert array.numpy().tolist() == [3.0] * 100
    assert found["allotment_memory_current_bytes", "cuda:0", "mempool"] == 800
    assert ("allotment_memory_reserved_bytes", "cuda:0", "mempool") not in found
    assert [call.name for call in sim.calls if call.error] == []


def test_it_listens_on_the_loopback_only_unless_it_is_told_otherwise():
    with al.serve_metrics(0) as server:
        assert server.address == "127.0.0.1"
        assert server.url == f"http://127.0.0.1:{server.port}/metrics"
    with al.serve_metrics(0, address="0.0.0.0") as server:
        assert server.address == "0.0.0.0"


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 here")
def test_an_address_of_ipv6_has_brackets_in_the_url(get):
    try:
        server = al.serve_metrics(0, address="::1")
    except al.ServingError:
        pytest.skip("the loopback has no IPv6 address here")
    with server:
        assert server.url == f"http://[::1]:{server.port}/metrics"
        get(server.url).close()


def test_a_port_in_use_is_an_error_that_names_it():
    with al.serve_metrics(0) as server, pytest.raises(al.ServingError) as caught:
        al.serve_metrics(server.port)

    assert str(caught.value) == (
        f"metrics cannot be served on port {server.port} of '127.0.0.1': port {server.port} is in use. "
        "Close what listens there, choose another port, or 0 for any that is free."
    )
    assert isinstance(caught.value, OSError)


def test_an_address_that_is_not_this_machines_is_an_error():
    with pytest.raises(al.ServingError, match=r"on port 0 of '192\.0\.2\.1': .*Choose an address of this machine"):
        al.serve_metrics(0, address="192.0.2.1")


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_out_of_range_is_refused(port):
    with pytest.raises(ValueError, match="from 0 to 65535"):
        al.serve_metrics(port)


@pytest.mark.parametrize("port", ["9464", 1.5, None, True])
def test_a_port_that_is_no_number_is_refused(port):
    with pytest.raises(TypeError):
        al.serve_metrics(port)


def test_an_empty_address_is_refused_for_it_would_mean_every_interface():
    with pytest.raises(ValueError, match="address"):
        al.serve_metrics(0, address="")


def test_without_the_client_library_the_error_says_what_to_install(monkeypatch):
    for name in [*sys.modules]:
        if name.startswith(("prometheus_client", "allotment.serving._http", "allotment.serving._collector")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    with pytest.raises(al.UnsupportedError, match=r"pip install 'allotment\[metrics\]'"):
        al.serve_metrics(0)


def test_closing_frees_the_port_and_can_be_repeated(get):
    server = al.serve_metrics(0)
    server.close()
    server.close()

    with pytest.raises(URLError):
        get(server.url)
    with al.serve_metrics(server.port) as again:
        assert again.port == server.port
    assert repr(server) == f"<metrics at {server.url}, closed>"


def test_closing_does_not_wait_for_a_client_that_says_nothing():
    server = al.serve_metrics(0)
    with socket.create_connection((server.address, server.port), timeout=PATIENCE) as idle:
        server.close()

        with suppress(ConnectionResetError):  # where it was not accepted yet
            assert idle.recv(1) == b""


def test_a_client_that_breaks_off_is_nobodys_concern(scrape, capfd):
    with al.serve_metrics(0) as server:
        with socket.create_connection((server.address, server.port), timeout=PATIENCE) as client:
            client.sendall(b"GET /metrics HTTP/1.0\r\n")
        scrape(server)

    assert capfd.readouterr() == ("", "")


def test_a_server_that_nobody_keeps_serves_until_the_process_ends(output_of):
    lines = output_of("""
        import gc, urllib.request
        import allotment as al
        al.init("sim:2xh200", quiet=True)
        url = al.serve_metrics(0).url
        gc.collect()
        array = al.empty(100, device="cuda:0")
        print(b'current_bytes{allocator="mempool",device="cuda:0"} 800.0' in urllib.request.urlopen(url).read())
    """)

    assert lines == ["True"]


@needs_fork
def test_a_forked_child_serves_nothing_and_does_not_keep_the_port(output_of):
    lines = output_of(
        """
        import os, socket
        import allotment as al
        server = al.serve_metrics(0)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(reading, 1)
            os._exit(0)
        server.close()
        with al.serve_metrics(server.port) as again:   # the child lives, and holds no socket of it
            print(again.port == server.port, flush=True)
        os.write(writing, b"x")
        os.waitpid(child, 0)
        server = al.serve_metrics(0)
        child = os.fork()
        if child == 0:
            print(server.is_open, flush=True)
            server.close()
            with al.serve_metrics(0) as own:
                print(own.is_open, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(server.is_open)
    """,
        *FORKING,
    )

    assert lines == ["True", "False", "True", "True"]


@needs_fork
def test_serving_does_not_make_a_child_one_that_was_forked_from_a_user_of_a_gpu(output_of):
    lines = output_of(
        """
        import os
        import allotment as al
        with al.serve_metrics(0):
            child = os.fork()
            if child == 0:
                al.init("sim:2xh200", quiet=True)
                print(al.empty(3, device="cuda:0").nbytes, flush=True)
                os._exit(0)
            os.waitpid(child, 0)
    """,
        *FORKING,
    )

    assert lines == ["24"]
