import pytest


def subjects(document, severity):
    return {finding["subject"] for finding in document["findings"] if finding["severity"] == severity}


def findings(document, subject):
    return [finding for finding in document["findings"] if finding["subject"] == subject]


def test_a_machine_without_a_gpu_has_no_problem_and_is_told_why(run_json):
    document = run_json("doctor")
    (missing, simulate) = findings(document, "GPU")

    assert document["ok"] is True
    assert missing["severity"] == "warning"
    assert "CUDA_VISIBLE_DEVICES is ''" in missing["text"]
    assert missing["command"] == "unset CUDA_VISIBLE_DEVICES"
    assert "sim:2xh200" in simulate["command"]


def test_every_finding_has_the_same_keys(run_json):
    document = run_json("doctor")

    assert set(document) == {"ok", "findings"}
    assert all(set(finding) == {"severity", "subject", "text", "command"} for finding in document["findings"])
    assert {finding["severity"] for finding in document["findings"]} <= {"ok", "warning", "problem"}


def test_each_device_is_tried(run_json, plain):
    document = run_json("doctor", ALLOTMENT_PLATFORM="sim:2xh200", ALLOTMENT_ALLOCATOR=plain)

    outcome = "allocated, filled, copied back and compared"
    assert findings(document, "cpu")[-1]["text"] == f"1 MiB from host (HOST) {outcome}"
    assert findings(document, "cuda:0")[-1]["text"] == f"1 MiB from {plain} (CUDA_DEVICE) {outcome}"
    assert findings(document, "cuda:1")[-1]["text"] == f"1 MiB from {plain} (CUDA_DEVICE) {outcome}"
    assert document["ok"]


def test_memory_that_loses_what_is_written_is_a_problem(run_json, plain, monkeypatch):
    from allotment.platform.simulated import SimulatedPlatform

    monkeypatch.setattr(SimulatedPlatform, "fill", lambda *_: None)
    environment = {"ALLOTMENT_PLATFORM": "sim:2xh200", "ALLOTMENT_ALLOCATOR": plain}
    document = run_json("doctor", exit_code=1, **environment)

    assert "1,048,576 of 1,048,576 bytes wrong" in findings(document, "cuda:0")[-1]["text"]


def test_an_allocator_that_is_asked_for_and_not_there_is_a_problem(run_json):
    environment = {"ALLOTMENT_PLATFORM": "sim:h200", "ALLOTMENT_ALLOCATOR": "rmmm"}
    document = run_json("doctor", exit_code=1, **environment)
    found = findings(document, "cuda:0")[-1]

    assert found["severity"] == "problem"
    assert "'rmmm' is not installed" in found["text"]
    assert "allocator in ALLOTMENT_ALLOCATOR" in found["text"]
    assert found["command"] == "allotment allocators cuda:0 --check"


def test_a_broken_plugin_is_a_problem_with_its_cause(run_json, install):
    install("spoilt", "raise RuntimeError('it is spoilt')", "Allocator")
    document = run_json("doctor", exit_code=1)
    (found,) = (finding for finding in findings(document, "plugin") if "spoilt" in finding["text"])

    assert found["severity"] == "problem"
    assert "spoilt (trial-spoilt 1.5) is broken" in found["text"]
    assert "it is spoilt" in found["text"]
    assert found["command"] == "pip show trial-spoilt"


def test_a_plugin_that_lacks_a_package_is_a_warning_with_the_remedy(run_json, install):
    install("needy", "import nothing_of_this_name", "Allocator")
    document = run_json("doctor")
    (found,) = (finding for finding in findings(document, "plugin") if "needy" in finding["text"])

    assert found["severity"] == "warning"
    assert "nothing_of_this_name" in found["text"]


def test_a_plugin_for_another_core_is_a_problem(run_json, install, monkeypatch, plain_source):
    monkeypatch.setattr("allotment.registry._registry.running_version", lambda: "0.1.0")
    install("newer", plain_source, "Plain", requires=["allotment>=999"])
    document = run_json("doctor", exit_code=1)
    (found,) = (finding for finding in findings(document, "plugin") if "newer" in finding["text"])

    assert (found["severity"], "is not compatible" in found["text"]) == ("problem", True)


def test_a_plugin_that_was_switched_off_is_no_fault(run_json, plain):
    document = run_json("doctor", ALLOTMENT_PLUGINS__DENY=plain)
    (found,) = (finding for finding in findings(document, "plugin") if plain in finding["text"])

    assert found["severity"] == "ok"
    assert "the deny list names it" in found["text"]


def test_a_plugin_that_no_gpu_here_can_use_is_a_warning_with_the_reason(run_json, install, plain_source):
    choosy = plain_source.replace("Availability(device.is_cuda, ", "Availability(False, 'wrong moon' or ")
    install("choosy", choosy, "Plain")
    document = run_json("doctor", "--platform", "sim:2xh200", exit_code=None)
    (found,) = (finding for finding in findings(document, "plugin") if "choosy" in finding["text"])

    assert found["severity"] == "warning"
    assert "wrong moon" in found["text"]


def test_a_broken_observer_is_a_warning(run_json, install):
    install("blind", "raise RuntimeError('cannot see')", "Observer", group="allotment.observers")
    (found,) = findings(run_json("doctor"), "observer")

    assert (found["severity"], "cannot see" in found["text"]) == ("warning", True)


def test_a_broken_file_is_a_problem_and_the_rest_is_examined_without_it(run_json, empty_folder):
    path = empty_folder / "allotment.toml"
    path.write_text("alocator = 1\n")
    document = run_json("doctor", exit_code=1)
    found = findings(document, "configuration")

    assert found[0]["severity"] == "problem"
    assert str(path) in found[0]["text"]
    assert "Did you mean 'allocator'?" in found[0]["text"]
    assert "without any configuration" in found[1]["text"]
    assert findings(document, "cpu")[-1]["severity"] == "ok"


def test_files_and_variables_that_say_something_are_listed(run_json, empty_folder):
    path = empty_folder / "allotment.toml"
    path.write_text("quiet = true\n")
    texts = [finding["text"] for finding in findings(run_json("doctor", ALLOTMENT_QUIET="false"), "configuration")]

    assert texts == ["ALLOTMENT_QUIET says quiet", f"{path} says quiet"]


def test_a_variable_that_is_no_setting_is_a_warning(run_json):
    (found,) = findings(run_json("doctor", ALLOTMENT_ALOCATOR="managed"), "warnings")

    assert "Did you mean 'ALLOTMENT_ALLOCATOR'?" in found["text"]


def test_a_platform_that_is_asked_for_and_not_there_is_a_problem_with_the_remedy(run_json):
    document = run_json("doctor", exit_code=1, ALLOTMENT_PLATFORM="cuda")
    (found,) = findings(document, "platform")

    assert found["severity"] == "problem"
    assert "asked for" in found["text"] or "is not available" in found["text"]
    assert found["command"] == "unset CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("profile", "text"), [("no-pools", "no memory pools"), ("wsl", "no concurrent managed access")]
)
def test_what_a_device_lacks_is_a_warning(run_json, plain, profile, text):
    environment = {"ALLOTMENT_PLATFORM": f"sim:{profile}", "ALLOTMENT_ALLOCATOR": plain}
    document = run_json("doctor", **environment)

    assert any(text in each["text"] and each["severity"] == "warning" for each in findings(document, "cuda:0"))


def test_the_text_ends_with_the_count(run):
    result = run("doctor")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].startswith("All that is asked for works: 0 problems, ")
    assert "  $ unset CUDA_VISIBLE_DEVICES" in result.stdout
