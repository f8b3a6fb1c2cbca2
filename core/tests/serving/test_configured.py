"""Serving what the configuration asks for: from the first use of a device on, never at import."""

from __future__ import annotations

import socket

import pytest

import allotment as al
from allotment import configuration, device, serving
from allotment.configuration import Configuration
from allotment.serving import MetricsServer, StatusServer, ask
from allotment.serving._service import open_services


@pytest.fixture
def using():
    """Return a function that puts settings in force, uses a device, and returns what is served then."""

    def use(**settings):
        with configuration.use(Configuration.isolated(platform="sim:2xh200", quiet=True, **settings)):
            al.get_devices()
            return open_services()

    yield use
    for service in open_services():
        service.close()


def test_the_status_is_served_from_the_first_use_of_a_device_on(using):
    (server,) = using(watch=True)

    assert isinstance(server, StatusServer)
    assert ask(server.pid).platform == "sim:2xh200"


def test_metrics_are_served_from_the_first_use_of_a_device_on(using, scrape):
    (server,) = using(metrics={"port": 0})

    assert isinstance(server, MetricsServer)
    assert server.address == "127.0.0.1"
    assert ("allotment_device_memory_size_bytes", "cuda:0", None) in scrape(server)


def test_the_address_of_metrics_can_be_configured(using):
    (server,) = using(metrics={"port": 0, "address": "0.0.0.0"})

    assert server.address == "0.0.0.0"


def test_both_can_be_served_and_each_once(using):
    first = using(watch=True, metrics={"port": 0})
    with al.simulate("rtx4090"):
        again = using(watch=True, metrics={"port": 0})

    assert len(first) == 2
    assert again == first


def test_nothing_is_served_without_a_setting(using):
    assert using() == ()


def test_variables_are_settings_too_and_importing_serves_nothing(output_of, runtime_folder):
    script = """
        import threading
        import allotment as al
        print(threading.active_count())
        al.get_devices()
        print(sorted(thread.name.rstrip("0123456789") for thread in threading.enumerate())[1:])
    """
    lines = output_of(
        script, ALLOTMENT_WATCH="1", ALLOTMENT_METRICS__PORT="0", XDG_RUNTIME_DIR=str(runtime_folder.parent)
    )

    assert lines == ["1", "['allotment-metrics-', 'allotment-status']"]


def test_init_serves_what_is_configured(output_of, runtime_folder):
    script = """
        import os
        import allotment as al
        from allotment.serving import ask
        al.init("sim:2xh200", quiet=True)
        print(ask(os.getpid()).platform)
    """

    assert output_of(script, ALLOTMENT_WATCH="1") == ["sim:2xh200"]


def test_a_port_in_use_is_a_warning_that_names_the_setting_and_does_not_stop_the_program(using):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.warns(al.ConfigWarning, match=rf"metrics\.port in .* has no effect: .* port {port} is in use"):
            assert using(metrics={"port": port}) == ()


def test_a_missing_client_library_is_an_error_that_names_the_setting(using, monkeypatch):
    def refuse(*_, **__):
        raise al.UnsupportedError("the package prometheus-client is not installed")

    monkeypatch.setattr("allotment.serving._configured.serve_metrics", refuse)
    for _ in range(2):
        with pytest.raises(al.ConfigError, match=r"metrics\.port: the package prometheus-client is not installed"):
            using(metrics={"port": 0})


def test_a_setting_that_comes_after_the_first_use_warns(sim):
    al.get_devices()
    with pytest.warns(al.ConfigWarning, match="watch = True has no effect"):
        al.configure(watch=True)
    with pytest.warns(al.ConfigWarning, match=r"metrics\.port = 0 has no effect"):
        al.configure(metrics={"port": 0})


def test_it_can_be_held_back_and_let_go(using):
    with serving.held_back():
        assert using(watch=True) == ()
        device.forget_devices()
        with serving.let_go():
            assert len(using(watch=True)) == 1
