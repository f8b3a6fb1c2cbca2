"""Compile the hot paths of core when a wheel is built; without a compiler the wheel is pure Python."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULES = (
    "allotment._array_memory_native",
    "allotment._beside_captures_native",
    "allotment.bridges._c_callbacks_native",
    "allotment.bridges._express_native",
    "allotment.layers._ledger_native",
)
"""Each has a twin in Python, which has the same name without ``_native``."""


class CompiledTwins(BuildHookInterface[Any]):
    """Adds the compiled modules to wheels, and puts them beside their sources for editable installs.

    ``ALLOTMENT_BUILD_PURE=1`` builds without them.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are gathered."""
        if self.target_name != "wheel" or os.environ.get("ALLOTMENT_BUILD_PURE") == "1":
            return
        try:
            built = compile_modules(Path(self.root, "src"))
        except BaseException as error:  # noqa: BLE001 - setuptools leaves by SystemExit where there is no compiler
            self.app.display_warning(f"{MODULES} were not compiled, their twins in Python serve instead: {error}")
            return
        if version == "editable":
            for place, file in built.items():
                _replace(Path(self.root, "src", place), file.read_bytes())
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update({str(file): place for place, file in built.items()})


def compile_modules(source: Path) -> dict[str, Path]:
    """Compile all modules, and return what came of it by its place in the wheel."""
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    folder = tempfile.mkdtemp(prefix="allotment-native-")
    arguments = ["/O2"] if os.name == "nt" else ["-O3", "-g0", "-Wall"]
    extensions = [
        Extension(module, [str(source.joinpath(*module.split(".")).with_suffix(".c"))], extra_compile_args=arguments)
        for module in MODULES
    ]
    command = build_ext(Distribution({"name": "allotment-native", "ext_modules": extensions}))
    command.build_lib, command.build_temp = folder, folder
    command.ensure_finalized()
    command.run()
    files = [Path(command.get_ext_fullpath(module)) for module in MODULES]
    return {file.relative_to(folder).as_posix(): file for file in files}


def _replace(path: Path, content: bytes) -> None:
    """Write a file anew: one that a running process has mapped must not change under it."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    new.replace(path)
