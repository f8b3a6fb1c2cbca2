"""What CuPy lacks, through cuda-bindings."""

from __future__ import annotations

import sys

import pytest

from allotment.errors import UnsupportedError
from allotment.platform.cuda._bindings import Bindings


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(UnsupportedError, match=r"cuda-bindings.*allotment\[cuda13\]") as refusal:
        Bindings()
    assert isinstance(refusal.value.__cause__, ImportError)
