"""Compile the hot path of the accounts when a wheel of core is built; without a compiler the wheel is pure Python."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "allotment.layers._ledger_native"
SOURCE = "src/allotment/layers/_ledger_native.c"


class CompiledLedger(BuildHookInterface[Any]):
    """Adds the compiled module to wheels, and puts it beside its source for editable installs.

    ``ALLOTMENT_BUILD_PURE=1`` builds without it.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are gathered."""
        if self.target_name != "wheel" or os.environ.get("ALLOTMENT_BUILD_PURE") == "1":
            return
        try:
            built = self._compile()
        except BaseException as error:  # noqa: BLE001 - setuptools leaves by SystemExit where there is no compiler
            self.app.display_warning(f"{MODULE} was not compiled, its twin in Python serves instead: {error}")
            return
        if version == "editable":
            Path(self.root, "src", *MODULE.split(".")[:-1], built.name).write_bytes(built.read_bytes())
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"][str(built)] = "/".join([*MODULE.split(".")[:-1], built.name])

    def _compile(self) -> Path:
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext

        folder = tempfile.mkdtemp(prefix="allotment-ledger-")
        arguments = ["/O2"] if os.name == "nt" else ["-O3", "-g0", "-Wall"]
        extension = Extension(MODULE, [str(Path(self.root, SOURCE))], extra_compile_args=arguments)
        command = build_ext(Distribution({"name": "allotment-ledger", "ext_modules": [extension]}))
        command.build_lib, command.build_temp = folder, folder
        command.ensure_finalized()
        command.run()
        return Path(command.get_ext_fullpath(MODULE))
