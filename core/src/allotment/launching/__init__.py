"""Launching kernels of any library on arrays, through adapters that a plugin can add to."""

from allotment.launching._adapter import KernelAdapter, register_kernel_adapter
from allotment.launching._launch import launch
from allotment.launching._python import launch_dim
from allotment.launching._request import LaunchRequest

__all__ = ["KernelAdapter", "LaunchRequest", "launch", "launch_dim", "register_kernel_adapter"]
