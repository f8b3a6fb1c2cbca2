"""Compile the engine when a wheel is built; without a compiler the wheel is pure Python."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "allotment_caching._native"
PACKAGE = "src/allotment_caching"
SOURCES = ("_native.pyx", "native/elastic.cpp", "native/mlx_cache.cpp", "native/mlx.cpp", "native/c_calls.cpp")


class CompiledEngine(BuildHookInterface[Any]):
    """Adds the compiled module to wheels, and puts it beside its source for editable installs.

    ``ALLOTMENT_BUILD_PURE=1`` builds without it.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are gathered."""
        if self.target_name != "wheel" or os.environ.get("ALLOTMENT_BUILD_PURE") == "1":
            return
        try:
            built = compile_engine(Path(self.root))
        except BaseException as error:  # noqa: BLE001 - setuptools leaves by SystemExit where there is no compiler
            self.app.display_warning(f"{MODULE} was not compiled, its twin in Python serves instead: {error}")
            return
        if version == "editable":
            _replace(Path(self.root, PACKAGE, built.name), built.read_bytes())
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"][str(built)] = f"allotment_caching/{built.name}"


def compile_engine(root: Path) -> Path:
    """Compile, and return the path of what came of it."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    folder = tempfile.mkdtemp(prefix="allotment-engine-")
    arguments = (
        ["/O2", "/std:c++17", "/EHsc"] if os.name == "nt" else ["-O3", "-g0", "-std=c++17", "-fvisibility=hidden"]
    )
    extension = Extension(
        MODULE,
        [str(root / PACKAGE / source) for source in SOURCES],
        include_dirs=[str(root / PACKAGE)],
        extra_compile_args=arguments,
        language="c++",
    )
    (extension,) = cythonize([extension], build_dir=folder, quiet=True)
    command = build_ext(Distribution({"name": "allotment-engine", "ext_modules": [extension]}))
    command.build_lib, command.build_temp = folder, folder
    command.ensure_finalized()
    command.run()
    return Path(command.get_ext_fullpath(MODULE))


def _replace(path: Path, content: bytes) -> None:
    """Write a file beside the one in place and put it there: a process may be running the old one."""
    beside = path.with_suffix(".new")
    beside.write_bytes(content)
    beside.replace(path)
