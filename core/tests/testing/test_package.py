"""The package as it is imported."""

import subprocess
import sys

import pytest

from allotment import testing


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_every_public_name_is_there():
    for name in testing.__all__:
        assert getattr(testing, name) is not None
    assert set(testing.__all__) <= set(dir(testing))


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="AlocatorConformance"):
        testing.AlocatorConformance  # noqa: B018


@pytest.mark.parametrize("missing", ["pytest", "hypothesis"])
def test_without_the_extra_the_error_names_it(missing):
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom allotment.testing import AllocatorConformance"

    ended = run(code)

    assert "ImportError: allotment.testing needs pytest and hypothesis" in ended.stderr
    assert "pip install 'allotment[testing]'" in ended.stderr


def test_pytest_can_load_the_plugin_without_hypothesis():
    ended = run("import sys; sys.modules['hypothesis'] = None\nimport allotment.testing._pytest_plugin")

    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_plugin_imports_nothing_of_allotment_before_it_is_used():
    ended = run(
        "import sys, allotment.testing._pytest_plugin\n"
        "print(sorted(name for name in sys.modules if name.startswith('allotment')))"
    )

    assert ended.stdout.strip() == "['allotment', 'allotment.testing', 'allotment.testing._pytest_plugin']"


def test_allotment_itself_does_not_import_the_kit():
    ended = run(
        "import sys, allotment\n"
        "allotment.get_devices()\n"
        "print([name for name in ('pytest', 'hypothesis', 'allotment.testing') if name in sys.modules])"
    )

    assert ended.stdout.strip() == "[]"
