"""The accounts as metrics. It imports the client library of Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from allotment._version import version
from allotment.serving._reading import read_status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

    from allotment.serving._reading import AllocatorStatus, DeviceStatus, ProcessStatus

BYTES: Final = {
    "current": "Bytes handed out, as they were asked for.",
    "peak": "The most bytes that were handed out at once.",
    "reserved": "Bytes that the allocator holds of the device.",
    "peak_reserved": "The most bytes that the allocator held of the device at once.",
    "largest_free": "Bytes of the largest request that needs no more of the device.",
}
"""The figures of allocators in bytes, by field."""
CALLS: Final = {
    "allocations": "Allocations that succeeded.",
    "frees": "Frees that succeeded.",
    "failed_allocations": "Allocations that failed.",
    "failed_frees": "Frees that failed.",
}
"""The figures of allocators in calls, by field."""
_BY_ALLOCATOR: Final = ("device", "allocator")


class MemoryCollector(Collector):
    """What a registry of the client library asks for metrics: the accounts at the moment of the question."""

    def collect(self) -> Iterable[Metric]:
        """Return the metrics. A figure that is not known has no sample."""
        status = read_status()
        yield _info(status)
        for field, text in BYTES.items():
            gauge = GaugeMetricFamily(f"allotment_memory_{field}", text, labels=_BY_ALLOCATOR, unit="bytes")
            for labels, value in _samples(status.allocators, field):
                gauge.add_metric(labels, value)
            yield gauge
        for field, text in CALLS.items():
            counter = CounterMetricFamily(f"allotment_{field}", text, labels=_BY_ALLOCATOR)
            for labels, value in _samples(status.allocators, field):
                counter.add_metric(labels, value)
            yield counter
        yield _readable(status.allocators)
        yield from _devices(status.devices)

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering asks for no figures."""
        return []


def _samples(allocators: Iterable[AllocatorStatus], field: str) -> Iterator[tuple[tuple[str, str], int]]:
    for each in allocators:
        if (value := getattr(each, field)) is not None:
            yield (each.device, each.allocator), value


def _info(status: ProcessStatus) -> Metric:
    facts = {"version": version(), "platform": status.platform or "none"}
    return InfoMetricFamily("allotment", "The version of Allotment and the platform in force.", value=facts)


def _readable(allocators: Iterable[AllocatorStatus]) -> Metric:
    text = "Whether the allocator told its figures: 1, or 0 if it failed to."
    gauge = GaugeMetricFamily("allotment_allocator_readable", text, labels=_BY_ALLOCATOR)
    for each in allocators:
        gauge.add_metric((each.device, each.allocator), float(each.problem is None))
    return gauge


def _devices(devices: Iterable[DeviceStatus]) -> Iterator[Metric]:
    size = GaugeMetricFamily("allotment_device_memory_size", "The device's memory.", labels=("device",), unit="bytes")
    text = "The device's memory that no process uses."
    free = GaugeMetricFamily("allotment_device_memory_free", text, labels=("device",), unit="bytes")
    for each in devices:
        size.add_metric((each.device,), each.total)
        if each.free is not None:
            free.add_metric((each.device,), each.free)
    yield size
    yield free
