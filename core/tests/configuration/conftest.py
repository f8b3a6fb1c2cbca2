from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from allotment.configuration import Configuration, read_sources, reset


@dataclass
class Workplace:
    """A process's surroundings in a temporary folder: an environment, a project, a user's folder."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self):
        self.project.mkdir()
        self.user.mkdir()

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def user(self) -> Path:
        return self.root / "user"

    def write(self, text: str, name: str = "project/allotment.toml") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def configuration(self, working_directory: Path | None = None) -> Configuration:
        return Configuration(partial(read_sources, self.environment, working_directory or self.project, self.user))


@pytest.fixture
def workplace(tmp_path) -> Workplace:
    return Workplace(tmp_path)


@pytest.fixture(autouse=True)
def nothing_stays_configured():
    yield
    reset()
