"""What the table says is what kernels do, on every simulated machine: they run where it says so, else they fault."""

import pytest

import allotment as al
from allotment.access import RULES, Verdict, kinds_of
from allotment.grants import set_mempool_access_enabled, set_peer_access_enabled

pytestmark = pytest.mark.filterwarnings("ignore::allotment.FreeFailedWarning")  # after a fault nothing can be freed

PROFILES = ("2xh200", "2xl40", "hmm", "gh200", "gb10", "jetson-thor", "jetson-orin", "wsl", "no-pools")
KINDS = (
    al.MemoryKind.HOST,
    al.MemoryKind.PINNED,
    al.MemoryKind.CUDA_DEVICE,
    al.MemoryKind.CUDA_MEMPOOL,
    al.MemoryKind.CUDA_MANAGED,
)
ALIASES = ("cpu", "cuda:0", "cuda:1")


def assert_agree(access, device, array):
    report = al.explain_access(device, array)
    assert al.can_access(device, array) is bool(report)
    assert access.runs(device, array) is (report.verdict is Verdict.ACCESSIBLE), report
    return report.rule


@pytest.mark.parametrize("accessor", ALIASES)
@pytest.mark.parametrize("owner", ALIASES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("profile", PROFILES)
def test_verdict_and_kernel_agree_without_grants(access, profile, kind, owner, accessor):
    with al.simulate(profile):
        if not {accessor, owner} <= {device.alias for device in al.get_devices()}:
            return
        if kind not in kinds_of(al.get_device(owner)):
            return
        array = access.make(owner, kind)
        if kind is al.MemoryKind.CUDA_MANAGED and accessor == "cpu":
            with access.busy(owner):
                assert_agree(access, accessor, array)
        else:
            assert_agree(access, accessor, array)


@pytest.mark.parametrize("peer", [False, True], ids=["no peer", "peer"])
@pytest.mark.parametrize("pool", [False, True], ids=["no pool", "pool"])
@pytest.mark.parametrize("kind", KINDS[2:], ids=lambda kind: kind.name)
@pytest.mark.parametrize("profile", ["2xh200", "2xl40"])
def test_verdict_and_kernel_agree_under_all_grants(access, profile, kind, pool, peer):
    with al.simulate(profile):
        array = access.make("cuda:0", kind)
        set_peer_access_enabled("cuda:0", "cuda:1", peer)
        set_mempool_access_enabled("cuda:0", "cuda:1", pool)
        expected = {al.MemoryKind.CUDA_DEVICE: peer, al.MemoryKind.CUDA_MEMPOOL: pool}.get(kind, True)

        assert al.can_access("cuda:1", array) is expected
        assert_agree(access, "cuda:1", array)


def test_a_grant_the_other_way_round_does_not_help(sim, access):
    arrays = access.made(al.get_device("cuda:0"))[:2]
    set_peer_access_enabled("cuda:1", "cuda:0", True)
    set_mempool_access_enabled("cuda:1", "cuda:0", True)

    assert [al.can_access("cuda:1", array) for array in arrays] == [False, False]
    assert not access.runs("cuda:1", arrays[0])


# Each rule by itself


def wrapped(sim, allocate, **options):
    """Return memory that another library allocated on device 0."""
    before = sim.switch_device(0)
    ptr = allocate(sim)
    sim.restore_context(before)
    return al.from_pointer(ptr, 8, "float64", "cuda:0", **options)


def foreign_plain(sim):
    return wrapped(sim, lambda sim: sim.malloc(64))


def foreign_pool(sim):
    return wrapped(sim, lambda sim: sim.malloc_from_pool(64, sim.default_pool(0), 0))


def foreign_mapped(sim, access):
    array = foreign_plain(sim)
    access.grant_directly(sim, al.get_device("cuda:0"), al.get_device("cuda:1"), pool=0)
    return array


def granted(sim, access, kind, grant):
    array = access.make("cuda:0", kind)
    grant("cuda:0", "cuda:1", True)
    return array


PLAIN, POOL, MANAGED = KINDS[2:]
SCENARIOS = {
    "empty": ("2xh200", {}, "cuda:1", lambda sim, access: al.empty(0, device="cuda:0")),
    "home": ("2xh200", {}, "cuda:0", lambda sim, access: access.make("cuda:0", POOL)),
    "host-by-host": (
        "2xh200",
        {},
        "cpu",
        lambda sim, access: wrapped(sim, lambda sim: sim.host_alloc(64)),
    ),
    "pinned-uva": ("2xh200", {}, "cuda:0", lambda sim, access: access.make("cpu", al.MemoryKind.PINNED)),
    "pageable": ("gh200", {}, "cuda:0", lambda sim, access: access.make("cpu", al.MemoryKind.HOST)),
    "pinned-no-uva": (
        "2xh200",
        {"unified_addressing": False},
        "cuda:0",
        lambda sim, access: access.make("cpu", al.MemoryKind.PINNED),
    ),
    "pageable-not": ("2xh200", {}, "cuda:0", lambda sim, access: access.make("cpu", al.MemoryKind.HOST)),
    "managed-by-host": ("2xh200", {}, "cpu", lambda sim, access: access.make("cuda:0", MANAGED)),
    "managed-limited": ("wsl", {}, "cpu", lambda sim, access: access.make("cuda:0", MANAGED)),
    "managed-by-device": ("2xh200", {}, "cuda:1", lambda sim, access: access.make("cuda:0", MANAGED)),
    "managed-unsupported": (
        "2xh200",
        {"managed_memory": False, "device": 1},
        "cuda:1",
        lambda sim, access: access.make("cuda:0", MANAGED),
    ),
    "device-by-host": ("2xh200", {}, "cpu", lambda sim, access: access.make("cuda:0", PLAIN)),
    "foreign-mapped": ("2xh200", {}, "cuda:1", foreign_mapped),
    "foreign-pool": ("2xh200", {}, "cuda:1", lambda sim, access: foreign_pool(sim)),
    "foreign-plain": ("2xh200", {}, "cuda:1", lambda sim, access: foreign_plain(sim)),
    "pool-granted": (
        "2xh200",
        {},
        "cuda:1",
        lambda sim, access: granted(sim, access, POOL, set_mempool_access_enabled),
    ),
    "pool-not-granted": ("2xh200", {}, "cuda:1", lambda sim, access: access.make("cuda:0", POOL)),
    "peer-enabled": ("2xh200", {}, "cuda:1", lambda sim, access: granted(sim, access, PLAIN, set_peer_access_enabled)),
    "peer-not-enabled": ("2xh200", {}, "cuda:1", lambda sim, access: access.make("cuda:0", PLAIN)),
}


@pytest.mark.parametrize("rule", SCENARIOS)
def test_a_kernel_does_what_the_rule_says(machine, access, rule):
    profile, flags, device, arrange = SCENARIOS[rule]
    with machine(profile, **flags) as sim:
        array = arrange(sim, access)
        if device == "cpu":
            with access.busy("cuda:0"):
                assert assert_agree(access, device, array) == rule
        else:
            assert assert_agree(access, device, array) == rule


@pytest.mark.parametrize("is_granted", [False, True])
def test_not_on_record_may_fault_or_run(sim, access, is_granted):
    array = access.make("cuda:0", POOL)
    if is_granted:
        access.grant_directly(
            sim, al.get_device("cuda:0"), al.get_device("cuda:1"), pool=array.allocator.allocator.pool_handle
        )
    with al.ScopedCapture("cuda:1") as capture:
        report = al.explain_access("cuda:1", array)
        al.launch(lambda values: values.__iadd__(1), 8, [array], device="cuda:1")
    assert (report.verdict, report.rule) == (Verdict.UNKNOWN, "not-on-record")

    capture.graph.launch()
    if is_granted:
        al.synchronize_device("cuda:1")
    else:
        with pytest.raises(al.PlatformError, match="IllegalAddress"):
            al.synchronize_device("cuda:1")


@pytest.mark.parametrize("pageable", [False, True])
def test_kind_unknown_may_fault_or_run(machine, access, pageable):
    with machine("2xh200", pageable_memory_access=pageable):
        host = al.ones(8, device="cpu")
        array = al.from_pointer(host.ptr, 8, "float64", "cuda:0", owner=host)
        report = al.explain_access("cuda:1", array)

        assert (report.verdict, report.rule) == (Verdict.UNKNOWN, "kind-unknown")
        assert access.runs("cuda:1", array) is pageable


def test_every_rule_was_tried_on_a_kernel():
    assert {*SCENARIOS, "not-on-record", "kind-unknown"} == {rule.id for rule in RULES}
