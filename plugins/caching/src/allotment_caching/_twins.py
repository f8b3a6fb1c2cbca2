"""Which of the two engines is used: the compiled one where there is one, else the one in Python."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from allotment_caching._options import Policy, Twin
from allotment_caching.engine.elastic import ElasticPolicy, ElasticSettings
from allotment_caching.engine.engine import Engine
from allotment_caching.engine.mlx import MlxPolicy
from allotment_caching.engine.mlx_cache import MlxCache, MlxSettings

if TYPE_CHECKING:
    from allotment import Device
    from allotment_caching._options import CachingOptions
    from allotment_caching._supply import PlatformSupply

IDLE_SECONDS: Final = 60.0

_shared: WeakKeyDictionary[object, WeakValueDictionary[CachingOptions, MlxCache]] = WeakKeyDictionary()
"""The caches that devices share, by their registry and what was asked for, as long as an engine uses them."""


def compiled_module() -> Any:
    """Return the compiled engine's module; ``None`` where it was not compiled."""
    try:
        return import_module("allotment_caching._native")
    except ImportError:
        return None


def make_engine(supply: PlatformSupply, options: CachingOptions, device: Device) -> tuple[Engine, MlxCache | None]:
    """Return an engine for a device, and the cache behind it if its policy is "mlx".

    Raises
    ------
    RuntimeError
        If the compiled engine is asked for and was not compiled.
    """
    native = _chosen_module(options)
    if options.policy is Policy.ELASTIC:
        settings = _elastic_settings(options, device.total_memory)
        if native is None:
            return Engine(ElasticPolicy(supply, settings), supply.streams), None
        return cast("Engine", native.Engine(supply, supply.streams, settings)), None  # a twin
    cache = _cache_for(native, options, device)
    if native is None:
        policy = MlxPolicy(cache, supply, device.ordinal, is_managed=options.mlx_managed)
        return Engine(policy, supply.streams), cache
    made = native.Engine(supply, supply.streams, cache, device.ordinal, options.mlx_managed)
    return cast("Engine", made), cache


def _chosen_module(options: CachingOptions) -> Any:
    native = None if options.engine is Twin.PYTHON else compiled_module()
    if native is None and options.engine is Twin.COMPILED:
        raise RuntimeError("the compiled engine is not there: this wheel of allotment-caching was built without it")
    return native


def _elastic_settings(options: CachingOptions, total: int) -> ElasticSettings:
    idle_seconds = IDLE_SECONDS if options.idle_seconds is None else options.idle_seconds
    return ElasticSettings(
        total=total,
        limit=options.limit.resolve(total) if options.limit is not None else total,
        cache_limit=options.cache_limit.resolve(total) if options.cache_limit is not None else total,
        idle_seconds=idle_seconds or None,
    )


def _mlx_settings(options: CachingOptions, total: int) -> MlxSettings:
    settings = replace(
        MlxSettings.mended(total),
        scalar_alignment=options.mlx_scalar_alignment,
        ignores_streams=options.mlx_ignores_streams,
        ignores_devices=options.mlx_ignores_devices,
        never_retries=options.mlx_never_retries,
        limits_wait=options.mlx_limits_wait,
        peak_falls_to_zero=options.mlx_peak_falls_to_zero,
    )
    if options.limit is not None:
        settings = replace(settings, memory_limit=options.limit.resolve(total))
    if options.cache_limit is not None:
        settings = replace(settings, cache_limit=options.cache_limit.resolve(total))
    if options.idle_seconds is not None:
        settings = replace(settings, idle_seconds=options.idle_seconds or None)
    return settings


def _cache_for(native: Any, options: CachingOptions, device: Device) -> MlxCache:
    """Return a new cache, or the one that other devices use already if buffers serve all of them."""
    make = MlxCache if native is None else native.MlxCache
    settings = _mlx_settings(options, device.total_memory)
    if not options.mlx_ignores_devices:
        return cast("MlxCache", make(settings))
    caches = _shared.setdefault(device.registry, WeakValueDictionary())
    return caches.setdefault(replace(options, mlx_managed=False), make(settings))
