"""Gather what a GPU host without network lacks of the suites into ``.suites/``: ``python3 -m tests.suites.prepare``."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.suites.suite import STORE

CUPY = ("https://github.com/cupy/cupy", "v14.2.0", ("pyproject.toml", "tests/conftest.py", "tests/cupy_tests"))
NUMBA = ("https://github.com/NVIDIA/numba-cuda", "v0.30.4", ("numba_cuda/numba/cuda/tests", "testing/conftest.py"))

NEEDED = ("filecheck", "cffi", "pycparser", "psutil", "numpy==2.4.6")
"""What Numba's tests import beside Numba, and the newest NumPy that has all that Numba-CUDA asks for."""


def main() -> int:
    """Gather both."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites.prepare", description=__doc__)
    parser.add_argument("--cupy", default=CUPY[0], help="CuPy's repository, or a copy of it")
    parser.add_argument("--cupy-revision", default=CUPY[1], help="the tag or commit")
    parser.add_argument("--numba", default=NUMBA[0], help="numba-cuda's repository, or a copy of it")
    parser.add_argument("--numba-revision", default=NUMBA[1], help="the tag or commit")
    parser.add_argument("--python", default="3.12", help="the Python that will run the suites")
    arguments = parser.parse_args()
    STORE.mkdir(exist_ok=True)
    (STORE / ".gitignore").write_text("*\n")
    gather(arguments.cupy, arguments.cupy_revision, CUPY[2], STORE / "cupy")
    gather(arguments.numba, arguments.numba_revision, NUMBA[2], STORE / "numba", strip="numba_cuda/numba/cuda/")
    gather_packages(STORE / "wheels", arguments.python)
    return 0


def gather_packages(folder: Path, python: str) -> None:
    """Put the wheels of packages that the suites need into a folder."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), "--no-deps"]
    command += ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp"]
    command += [f"--platform=manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17)]
    subprocess.run([*command, "--platform=manylinux2014_x86_64", "--platform=any", *NEEDED], check=True)


def gather(repository: str, revision: str, paths: tuple[str, ...], folder: Path, strip: str = "") -> None:
    """Put some paths of a repository at a revision into a folder."""
    with TemporaryDirectory() as temporary:
        if Path(repository).exists():
            clone = repository
        else:
            clone = temporary
            fetch = ["clone", "--quiet", "--depth=1", f"--branch={revision}", "--filter=blob:none", "--no-checkout"]
            subprocess.run(["git", *fetch, repository, clone], check=True)
        command = ["git", "-C", clone, "archive", revision, *paths]
        archive = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as members:
        for member in members.getmembers():
            member.name = member.name.removeprefix(strip)
            members.extract(member, folder, filter="data")
    print(f"{folder}: {sum(file.is_file() for file in folder.rglob('*'))} files", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
