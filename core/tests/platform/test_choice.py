"""Which platform is in force."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from allotment.errors import ConfigError, PlatformUnavailableError
from allotment.platform import Platform, choose
from allotment.platform._choice import Choice
from allotment.platform.host import HostPlatform


@pytest.fixture
def without_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def choice() -> Choice:
    return Choice(lambda: ("host", "this test"))


def test_the_host_is_chosen_by_name_and_says_who_asked():
    platform = choose("host", "ALLOTMENT_PLATFORM")
    assert (platform.name, platform.why) == ("host", "asked for by ALLOTMENT_PLATFORM")


def test_a_simulated_platform_is_chosen_by_its_profile():
    platform = choose("sim:2xh200", "ALLOTMENT_PLATFORM")
    assert platform.name == "sim:2xh200"
    assert platform.device_count() == 2
    assert platform.why == "asked for by ALLOTMENT_PLATFORM"


@pytest.mark.parametrize("spec", ["HOST", " host "])
def test_case_and_blanks_do_not_matter(spec: str):
    assert choose(spec).name == "host"


@pytest.mark.usefixtures("without_devices")
def test_auto_falls_back_to_the_host_and_says_what_was_found():
    platform = choose("auto")
    assert platform.name == "host"
    assert "CUDA_VISIBLE_DEVICES is ''" in platform.why


@pytest.mark.usefixtures("without_devices")
def test_cuda_where_there_is_none_is_an_error_with_reason_and_remedy():
    with pytest.raises(PlatformUnavailableError) as refusal:
        choose("cuda")
    assert refusal.value.platform == "cuda"
    assert "CUDA_VISIBLE_DEVICES" in refusal.value.reason
    assert refusal.value.remedy


@pytest.mark.parametrize("spec", ["", "rocm", "2xh200", "sim:", "sim"])
def test_an_unknown_platform_is_an_error_that_names_the_known(spec: str):
    with pytest.raises(ConfigError, match="sim:2xh200") as refusal:
        choose(spec, "allotment.toml")
    assert refusal.value.origin == "allotment.toml"
    assert refusal.value.accepted is not None
    assert {"auto", "cuda", "host"} <= set(refusal.value.accepted)


def test_the_configured_platform_is_chosen_once(choice: Choice):
    platform = choice.current()
    assert platform.why == "asked for by this test"
    assert choice.current() is platform


def test_nothing_is_chosen_before_it_is_asked_for():
    asked: list[str] = []
    choice = Choice(lambda: asked.append("now") or ("host", "this test"))
    assert asked == []
    choice.current()
    assert asked == ["now"]


def test_threads_that_ask_at_once_get_one_platform(choice: Choice):
    start = Barrier(8)

    def ask(_: int) -> Platform:
        start.wait()
        return choice.current()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(map(id, pool.map(ask, range(8))))) == 1


def test_a_failed_choice_is_not_remembered():
    specs = ["nonsense", "host"]
    choice = Choice(lambda: (specs.pop(0), "this test"))
    with pytest.raises(ConfigError):
        choice.current()
    assert choice.current().name == "host"


def test_a_platform_in_use_is_in_force_until_its_reset(choice: Choice):
    configured, used = choice.current(), HostPlatform()
    token = choice.use(used)
    assert choice.current() is used
    choice.reset(token)
    assert choice.current() is configured


def test_a_use_before_the_first_choice_chooses_nothing():
    choice = Choice(lambda: pytest.fail("the configured platform was not needed"))
    token = choice.use(HostPlatform())
    choice.current()
    choice.reset(token)


def test_uses_nest_and_may_end_out_of_order(choice: Choice):
    outer, inner = HostPlatform(), HostPlatform()
    first, second = choice.use(outer), choice.use(inner)
    choice.reset(first)
    assert choice.current() is inner
    choice.reset(second)
    assert choice.current() not in (outer, inner)


def test_a_use_that_ended_cannot_end_again(choice: Choice):
    token = choice.use(HostPlatform())
    choice.reset(token)
    with pytest.raises(ValueError, match="ended already"):
        choice.reset(token)


def test_a_use_is_in_force_in_other_threads_too(choice: Choice):
    used = HostPlatform()
    token = choice.use(used)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(choice.current).result() is used
    choice.reset(token)


def test_after_close_the_platform_is_chosen_anew(choice: Choice):
    platform = choice.current()
    choice.close()
    assert choice.current() is not platform


def test_importing_the_package_chooses_nothing_and_imports_no_gpu_library():
    script = """
import sys
import allotment.platform, allotment.platform.cuda
from allotment.platform import _choice
print(_choice._choice.in_force, *[name for name in ("cupy", "cuda.bindings", "torch") if name in sys.modules])
"""
    environment = dict(os.environ)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "None"
