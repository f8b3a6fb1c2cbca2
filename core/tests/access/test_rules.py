"""The table itself, on cases that no machine has to exist for: the vectors of Warp's engine, and each row."""

from dataclasses import dataclass

import pytest

from allotment.access import RULES, AccessCase, Verdict, judge
from allotment.memory_kind import MemoryKind

YES, NO, UNKNOWN = Verdict.ACCESSIBLE, Verdict.INACCESSIBLE, Verdict.UNKNOWN
HOST, PINNED, PLAIN, POOL, MANAGED = (
    MemoryKind.HOST,
    MemoryKind.PINNED,
    MemoryKind.CUDA_DEVICE,
    MemoryKind.CUDA_MEMPOOL,
    MemoryKind.CUDA_MANAGED,
)


@dataclass(frozen=True)
class FakeDevice:
    alias: str
    is_uva: bool = True
    is_cpu_memory_access_from_gpu_supported: bool = False
    is_managed_memory_supported: bool = True
    is_concurrent_managed_access_supported: bool = True
    is_gpu_memory_access_from_cpu_supported: bool = False

    @property
    def is_cpu(self):
        return self.alias == "cpu"


class FakeCase(AccessCase):
    """A case whose grants are given."""

    peer_access = pool_access = seen_by_driver = None

    def __init__(self, accessor, owner, kind, *, ptr=64, is_ours=True, **grants):
        super().__init__(accessor, owner, kind, ptr, is_ours=is_ours)
        for name, value in grants.items():
            setattr(self, name, value)


CPU, GPU, OTHER = FakeDevice("cpu"), FakeDevice("cuda:0"), FakeDevice("cuda:1")
COHERENT = FakeDevice("cuda:0", is_cpu_memory_access_from_gpu_supported=True)
NO_UVA = FakeDevice("cuda:0", is_uva=False)
LIMITED = FakeDevice("cuda:0", is_concurrent_managed_access_supported=False)
DIRECT = FakeDevice(
    "cuda:0", is_concurrent_managed_access_supported=False, is_gpu_memory_access_from_cpu_supported=True
)
UNMANAGED = FakeDevice("cuda:0", is_managed_memory_supported=False)

VECTORS = {
    "empty": (FakeCase(OTHER, GPU, PLAIN, ptr=0), YES, "empty"),
    "a: host by host": (FakeCase(CPU, CPU, HOST), YES, "home"),
    "b: pageable, discrete": (FakeCase(GPU, CPU, HOST), NO, "pageable-not"),
    "c: pageable, coherent": (FakeCase(COHERENT, CPU, HOST), YES, "pageable"),
    "d: pinned, UVA": (FakeCase(GPU, CPU, PINNED), YES, "pinned-uva"),
    "e: pinned, no UVA": (FakeCase(NO_UVA, CPU, PINNED), NO, "pinned-no-uva"),
    "f: pinned, no UVA, coherent": (
        FakeCase(FakeDevice("cuda:0", is_uva=False, is_cpu_memory_access_from_gpu_supported=True), CPU, PINNED),
        YES,
        "pageable",
    ),
    "g: plain by host, whatever the flags": (
        FakeCase(CPU, FakeDevice("cuda:0", is_gpu_memory_access_from_cpu_supported=True), PLAIN),
        NO,
        "device-by-host",
    ),
    "g: pool by host": (FakeCase(CPU, GPU, POOL), NO, "device-by-host"),
    "h: managed by host, limited": (FakeCase(CPU, LIMITED, MANAGED), NO, "managed-limited"),
    "h: managed by host, concurrent": (FakeCase(CPU, GPU, MANAGED), YES, "managed-by-host"),
    "h: managed by host, direct": (FakeCase(CPU, DIRECT, MANAGED), YES, "managed-by-host"),
    "i: plain, peer": (FakeCase(OTHER, GPU, PLAIN, peer_access=True, pool_access=False), YES, "peer-enabled"),
    "i: plain, pool only": (FakeCase(OTHER, GPU, PLAIN, peer_access=False, pool_access=True), NO, "peer-not-enabled"),
    "j: pool, pool": (FakeCase(OTHER, GPU, POOL, peer_access=False, pool_access=True), YES, "pool-granted"),
    "j: pool, peer only": (FakeCase(OTHER, GPU, POOL, peer_access=True, pool_access=False), NO, "pool-not-granted"),
    "k: foreign pool, mapped": (FakeCase(OTHER, GPU, POOL, is_ours=False, seen_by_driver=True), YES, "foreign-mapped"),
    "k: foreign pool, not mapped": (
        FakeCase(OTHER, GPU, POOL, is_ours=False, seen_by_driver=False),
        NO,
        "foreign-pool",
    ),
    "k: foreign plain, not mapped": (
        FakeCase(OTHER, GPU, PLAIN, is_ours=False, seen_by_driver=False),
        NO,
        "foreign-plain",
    ),
    "l: managed of another": (
        FakeCase(OTHER, GPU, MANAGED, peer_access=False, pool_access=False),
        YES,
        "managed-by-device",
    ),
    "l: managed, owner without": (FakeCase(OTHER, UNMANAGED, MANAGED), NO, "managed-unsupported"),
    "l: managed, accessor without": (FakeCase(UNMANAGED, OTHER, MANAGED), NO, "managed-unsupported"),
    "m: unknown of another": (FakeCase(OTHER, GPU, MemoryKind.UNKNOWN, is_ours=False), UNKNOWN, "kind-unknown"),
    "m: unknown by host": (FakeCase(CPU, GPU, MemoryKind.UNKNOWN, is_ours=False), UNKNOWN, "kind-unknown"),
    "m: unknown of its own": (FakeCase(GPU, GPU, MemoryKind.UNKNOWN, is_ours=False), YES, "home"),
    "freed, foreign": (FakeCase(OTHER, GPU, PLAIN, is_ours=False), UNKNOWN, "kind-unknown"),
    "plain, never asked": (FakeCase(OTHER, GPU, PLAIN), UNKNOWN, "not-on-record"),
    "pool, never asked": (FakeCase(OTHER, GPU, POOL), UNKNOWN, "not-on-record"),
    "pinned, wrapped as of a GPU, by host": (FakeCase(CPU, GPU, PINNED, is_ours=False), YES, "host-by-host"),
    "pinned, wrapped as of a GPU, by another": (FakeCase(OTHER, GPU, PINNED, is_ours=False), YES, "pinned-uva"),
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_case_gets_its_verdict_by_its_rule(name):
    case, verdict, rule = VECTORS[name]
    report = judge(case)

    assert (report.verdict, report.rule) == (verdict, rule)
    assert bool(report) is (verdict is YES)


def test_every_rule_decides_a_case():
    assert {rule for _, _, rule in VECTORS.values()} == {rule.id for rule in RULES}


def test_ids_are_unique():
    assert len({rule.id for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_what_cannot_be_done_has_a_remedy_and_what_can_has_none(rule):
    assert (rule.remedy is None) is (rule.verdict is YES)


def test_reason_and_remedy_name_the_devices_of_the_case():
    report = judge(FakeCase(OTHER, GPU, POOL, pool_access=False))

    assert report.reason == "the pool of cuda:0 grants no access to cuda:1; peer access does not help"
    assert report.remedy.startswith('Call set_mempool_access_enabled("cuda:0", "cuda:1", True)')


def test_inaccessible_is_worse_than_unknown_and_that_worse_than_accessible():
    assert sorted([NO, YES, UNKNOWN], key=lambda verdict: verdict.severity) == [YES, UNKNOWN, NO]
