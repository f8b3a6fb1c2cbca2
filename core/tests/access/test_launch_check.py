import threading
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import allotment as al
from allotment.access._launch_check import WarnedPatterns
from allotment.configuration import LaunchArrayAccessMode

RELAXED, CHECKED, STRICT = LaunchArrayAccessMode


@pytest.fixture(autouse=True)
def nothing_warned_of():
    al.reset_access_warnings()
    yield
    al.reset_access_warnings()


@pytest.fixture
def unknown(sim):
    """An array of device 1 of which nobody knows what it is."""
    host = np.zeros(4)
    return al.from_pointer(host.ctypes.data, 4, device="cuda:1", owner=host)


def kernel(*arguments):
    calls.append(arguments)


calls = []


@pytest.fixture(autouse=True)
def no_calls():
    calls.clear()
    yield
    calls.clear()


def set_mode(mode):
    al.config.launch_array_access_mode = mode


def launch_on(device, *inputs, outputs=(), name="kernel"):
    def named(*arguments):
        kernel(*arguments)

    named.__qualname__ = name
    al.launch(named, 1, inputs, outputs, device=device)


def refused(device, *inputs, **options):
    with pytest.raises(al.AccessError) as caught:
        launch_on(device, *inputs, **options)
    assert calls == []
    return caught.value


class TestChecked:
    @pytest.fixture(autouse=True)
    def checked(self, sim):
        set_mode(CHECKED)

    def test_the_error_has_the_facts(self, sim):
        error = refused("cuda:1", 3, al.zeros(4, device="cuda:0"), name="advance")

        assert (error.kernel, error.argument, error.device) == ("advance", "inputs[1]", "cuda:1")
        assert (error.array_device, error.memory_kind, error.rule) == ("cuda:0", "CUDA_MEMPOOL", "pool-not-granted")
        assert "memory_kind=CUDA_MEMPOOL" in str(error)
        assert error.remedy in str(error)

    @pytest.mark.parametrize(
        ("wrap", "path"),
        [
            (lambda array: SimpleNamespace(positions=array), "inputs[0].positions"),
            (lambda array: (1, {"key": [array]}), "inputs[0][1]['key'][0]"),
        ],
    )
    def test_an_array_inside_an_argument_is_named_by_its_path(self, wrap, path):
        assert refused("cuda:1", wrap(al.zeros(4, device="cuda:0"))).argument == path

    def test_outputs_are_checked_too(self):
        assert refused("cuda:1", outputs=[al.zeros(4, device="cuda:0")]).argument == "outputs[0]"

    def test_numpy_memory_is_host_memory(self):
        assert refused("cuda:0", np.zeros(4)).rule == "pageable-not"
        launch_on("cpu", np.zeros(4))

    def test_what_is_accessible_is_launched(self):
        al.set_mempool_access_enabled("cuda:0", "cuda:1", True)
        launch_on("cuda:1", al.zeros(4, device="cuda:0"), al.zeros(4, device="cpu", pinned=True), 5)

        assert len(calls) == 1

    def test_on_its_own_device_an_unknown_array_is_no_question(self, unknown):
        launch_on("cuda:1", unknown[:0])

    def test_what_nobody_knows_is_warned_of_and_launched(self, unknown):
        with pytest.warns(al.AccessWarning, match=r"'kernel' .* 'cpu' .* 'inputs\[0\]' on 'cuda:1'.*kind-unknown"):
            launch_on("cpu", unknown[::2])

    def test_the_warning_is_of_the_line_that_launches(self, unknown):
        with pytest.warns(al.AccessWarning) as caught:
            launch_on("cpu", unknown)

        assert [warning.filename for warning in caught] == [__file__]

    def test_a_pattern_is_warned_of_once(self, unknown):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                launch_on("cpu", unknown)

        assert len(caught) == 1

    def test_another_kernel_or_argument_is_another_pattern(self, unknown):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            launch_on("cpu", unknown)
            launch_on("cpu", unknown, name="another")
            launch_on("cpu", 1, unknown)

        assert len(caught) == 3

    def test_after_a_reset_it_is_warned_of_again(self, unknown):
        for _ in range(2):
            with pytest.warns(al.AccessWarning):
                launch_on("cpu", unknown)
            al.reset_access_warnings()

    def test_in_a_capture_recorded_state_alone_is_read(self, sim):
        never_asked, granted = al.zeros(4, device="cuda:0"), al.zeros(4, device="cuda:1")
        al.set_mempool_access_enabled("cuda:1", "cuda:0", True)
        with al.ScopedCapture("cuda:0"):
            sim.calls.clear()
            launch_on("cuda:0", granted)
            asked = {call.name for call in sim.calls}
        with al.ScopedCapture("cuda:1"), pytest.warns(al.AccessWarning, match="not-on-record"):
            launch_on("cuda:1", never_asked)

        assert not asked & {"pool_access", "malloc", "enable_peer_access"}


@pytest.mark.filterwarnings("ignore::allotment.AccessWarning")
class TestStrict:
    @pytest.fixture(autouse=True)
    def strict(self, sim):
        set_mode(STRICT)

    def test_an_accessible_array_of_another_device_is_refused_as_a_policy(self):
        error = refused("cuda:0", al.zeros(4, device="cpu", pinned=True))

        assert error.rule == "strict"
        assert "policy" in str(error)
        assert "CHECKED" in error.remedy
        assert "cuda:0" in error.remedy

    def test_an_unknown_array_of_another_device_is_refused(self, unknown):
        assert refused("cuda:0", unknown).rule == "strict"

    def test_arrays_of_the_device_are_launched(self):
        launch_on("cuda:1", al.zeros(4, device="cuda:1"), 3)

        assert len(calls) == 1


class TestRelaxed:
    @pytest.mark.filterwarnings("ignore::allotment.FreeFailedWarning")
    def test_the_same_launch_faults(self, sim):
        launch_on("cuda:1", al.zeros(4, device="cuda:0"))

        with pytest.raises(al.PlatformError, match="IllegalAddress"):
            al.synchronize_device("cuda:1")

    def test_nothing_is_asked(self, sim):
        array = al.zeros(4, device="cuda:0")
        launch_on("cuda:0", array)
        sim.calls.clear()
        launch_on("cuda:0", array)

        assert [call.name for call in sim.calls] == []

    def test_an_unknown_array_brings_no_warning(self, machine):
        with machine("2xh200", pageable_memory_access=True):
            host = np.zeros(4)
            launch_on("cuda:0", al.from_pointer(host.ctypes.data, 4, device="cuda:1", owner=host))


class TestWarnedPatterns:
    def test_it_is_bounded_and_forgets_what_was_met_longest_ago(self):
        patterns = WarnedPatterns(limit=2)
        for name in ("a", "b", "a", "c"):
            patterns.is_new(name)

        assert len(patterns) == 2
        assert [patterns.is_new(name) for name in ("a", "b")] == [False, True]

    def test_the_default_is_1024(self):
        patterns = WarnedPatterns()
        for number in range(3000):
            patterns.is_new(str(number))

        assert len(patterns) == 1024

    def test_of_many_threads_one_is_told_that_a_pattern_is_new(self):
        patterns, answers = WarnedPatterns(), []
        start = threading.Barrier(8)

        def ask():
            start.wait()
            answers.extend(patterns.is_new(str(number)) for number in range(200))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sum(answers) == 200


def test_a_change_of_the_mode_takes_effect_at_the_next_launch(sim):
    array = al.zeros(4, device="cpu", pinned=True)
    outcomes = []
    for mode in (RELAXED, STRICT, CHECKED, STRICT, RELAXED):
        set_mode(mode)
        try:
            launch_on("cuda:0", array)
        except al.AccessError:
            outcomes.append(mode)

    assert outcomes == [STRICT, STRICT]


def test_a_warning_made_an_error_keeps_the_kernel_from_running(unknown):
    set_mode(CHECKED)
    with warnings.catch_warnings():
        warnings.simplefilter("error", al.AccessWarning)
        with pytest.raises(al.AccessWarning):
            launch_on("cuda:0", unknown)

    assert calls == []
