"""Allocators side by side: the workloads that the field takes for fair, one process a contender and workload."""
