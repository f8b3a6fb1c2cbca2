"""The blocks about access between devices: the second half of the second guide."""

from __future__ import annotations

import pytest

import allotment as al

from .allocator_blocks import MANAGED, is_managed, ran_on_the_host
from .block import ACCESS, Block

GUIDE = (ACCESS,)
COUNTED = [float(value) for value in range(1, 1025)]


def both_ran(names):
    assert names["cpu_array"].numpy().tolist() == names["gpu_array"].numpy().tolist() == COUNTED


def ran_where_it_could(names):
    device, touched = names["device"], names.get("a_gpu", names["a"])
    al.synchronize()
    assert touched.numpy().tolist() == COUNTED
    assert ("a_gpu" in names) is not device.is_cpu_memory_access_from_gpu_supported


def is_a_bool(names):
    assert names["device"].is_gpu_memory_access_from_cpu_supported in (True, False)


def ran_on_the_copy(names):
    assert names["a_cpu"].numpy().tolist() == COUNTED
    assert names["a"].numpy().tolist() == [0.0] * 1024


def answers_as_the_device(names):
    device = names["launch_device"]
    assert al.can_access(device, names["data"]) is device.is_cpu_memory_access_from_gpu_supported


def answers_coarsely(names):
    device = names["launch_device"]
    assert device.can_access(names["array_device"]) is device.is_cpu_memory_access_from_gpu_supported


def launches_are_checked(names):
    assert al.config.launch_array_access_mode is al.config.LaunchArrayAccessMode.CHECKED
    host = al.zeros(4, device="cpu")
    if not al.can_access("cuda:0", host):
        with pytest.raises(al.AccessError, match="'cuda:0'"):
            al.launch(names["kernel"], dim=4, inputs=[host], device="cuda:0")


def ran_checked(names):
    assert names["a"].numpy().tolist() == COUNTED
    launches_are_checked(names)


ACCESS_BLOCKS = [
    Block(
        section="Launch Device Versus Allocation Device",
        guides=GUIDE,
        code="""
            cpu_array = wp.zeros(1024, dtype=float, device="cpu")
            gpu_array = wp.zeros(1024, dtype=float, device="cuda:0")

            wp.launch(kernel, dim=cpu_array.size, inputs=[cpu_array], device="cpu")
            wp.launch(kernel, dim=gpu_array.size, inputs=[gpu_array], device="cuda:0")
        """,
        check=both_ran,
    ),
    Block(
        section="GPU Kernels Using CPU Arrays",
        guides=GUIDE,
        profiles=("2xh200", "hmm", "gh200", "jetson-thor"),
        code="""
            device = wp.get_device("cuda:0")
            a = wp.zeros(1024, dtype=float, device="cpu")

            if device.is_cpu_memory_access_from_gpu_supported:
                wp.launch(kernel, dim=a.size, inputs=[a], device=device)
            else:
                a_gpu = a.to(device)
                wp.launch(kernel, dim=a_gpu.size, inputs=[a_gpu], device=device)
        """,
        check=ran_where_it_could,
    ),
    Block(
        section="CPU Code Using GPU-Resident Data",
        number=1,
        guides=GUIDE,
        profiles=("2xh200", "gh200", "gb10"),
        code="""
            device = wp.get_device("cuda:0")
            if device.is_gpu_memory_access_from_cpu_supported:
                ...
        """,
        check=is_a_bool,
    ),
    Block(
        section="CPU Code Using GPU-Resident Data",
        number=2,
        guides=GUIDE,
        before='device = wp.get_device("cuda:0")',
        code="""
            a = wp.zeros(1024, dtype=float, device=device)
            a_cpu = a.to("cpu")
            wp.launch(cpu_kernel, dim=a_cpu.size, inputs=[a_cpu], device="cpu")
        """,
        check=ran_on_the_copy,
    ),
    Block(
        section="Checking a Concrete Array",
        number=1,
        guides=GUIDE,
        profiles=("2xh200", "hmm"),
        code="""
            launch_device = wp.get_device("cuda:0")
            data = wp.empty(1024, dtype=float, device="cpu")

            if wp.can_access(launch_device, data):
                ...
        """,
        check=answers_as_the_device,
    ),
    Block(
        section="Checking a Concrete Array",
        number=2,
        guides=GUIDE,
        profiles=("2xh200", "wsl"),
        before=MANAGED,
        code="""
            if wp.can_access("cpu", a):
                wp.launch(cpu_kernel, dim=a.size, inputs=[a], device="cpu")
            else:
                a_cpu = a.to("cpu")
                wp.launch(cpu_kernel, dim=a_cpu.size, inputs=[a_cpu], device="cpu")
        """,
        check=ran_on_the_host,
    ),
    Block(
        section="Checking a Concrete Array",
        number=3,
        guides=GUIDE,
        before=MANAGED,
        code="""
            if a.memory_kind is wp.MemoryKind.CUDA_MANAGED:
                ...
        """,
        check=is_managed,
    ),
    Block(
        section="Checking Coarse Device Access",
        guides=GUIDE,
        profiles=("2xh200", "hmm"),
        code="""
            launch_device = wp.get_device("cuda:0")
            array_device = wp.get_device("cpu")

            if launch_device.can_access(array_device):
                ...
        """,
        check=answers_coarsely,
    ),
    Block(
        section="Checked Launch Validation",
        number=1,
        guides=GUIDE,
        code="""
            wp.config.launch_array_access_mode = wp.config.LaunchArrayAccessMode.CHECKED
        """,
        check=launches_are_checked,
    ),
    Block(
        section="Checked Launch Validation",
        number=2,
        guides=GUIDE,
        before='a = wp.zeros(1024, dtype=float, device="cuda:0")',
        code="""
            wp.config.launch_array_access_mode = wp.config.LaunchArrayAccessMode.CHECKED
            wp.launch(kernel, dim=a.size, inputs=[a], device="cuda:0")
        """,
        check=ran_checked,
    ),
]
