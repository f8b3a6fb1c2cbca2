import sys

BROKEN = "raise RuntimeError('it is spoilt')"


def row(document, name):
    (found,) = (row for row in document["allocators"] if row["name"] == name)
    return found


def test_an_allocator_is_listed_with_its_distribution(run_json, plain):
    found = row(run_json("allocators"), plain)

    assert found == {
        "name": plain,
        "qualified_name": f"trial-{plain}:{plain}",
        "distribution": f"trial-{plain}",
        "version": "1.5",
        "summary": "",
        "status": "available",
        "reason": None,
        "remedy": None,
        "devices": None,
    }


def test_listing_imports_nothing(run, plain):
    run("allocators")

    assert "installed_trial_plain" not in sys.modules


def test_checking_loads_each_and_tells_where_it_can_be_used(run_json, plain):
    environment = {"ALLOTMENT_PLATFORM": "sim:2xh200", "ALLOTMENT_ALLOCATOR": plain}
    found = row(run_json("allocators", "--check", **environment), plain)

    assert found["status"] == "loaded"
    assert found["devices"] == [
        {"device": "cpu", "ok": False, "reason": "it serves GPUs only"},
        {"device": "cuda:0", "ok": True, "reason": ""},
        {"device": "cuda:1", "ok": True, "reason": ""},
    ]


def test_one_device_can_be_asked_about(run_json):
    document = run_json("allocators", "cpu", "--check", "--platform", "sim:2xh200")

    assert [answer["device"] for answer in row(document, "host")["devices"]] == ["cpu"]
    assert [choice["device"] for choice in document["in_force"]] == ["cpu"]


def test_a_device_that_does_not_exist_is_an_error_that_says_which_do(run):
    result = run("allocators", "cuda:9", "--platform", "sim:2xh200")

    assert result.exit_code == 1
    assert "no device 'cuda:9'" in result.stderr
    assert "Devices here: cpu, cuda:0, cuda:1" in result.stderr


def test_a_broken_plugin_is_listed_with_its_reason_once_it_is_checked(run, run_json, install):
    install("spoilt", BROKEN, "Allocator")

    assert row(run_json("allocators"), "spoilt")["status"] == "available"
    found = row(run_json("allocators", "--check"), "spoilt")
    assert found["status"] == "broken"
    assert "it is spoilt" in found["reason"]
    assert "it is spoilt" in run("allocators", "--check").stdout


def test_the_allocator_in_force_is_told_with_its_origin(run_json, plain):
    document = run_json("allocators", "cuda:1", ALLOTMENT_PLATFORM="sim:2xh200", ALLOTMENT_ALLOCATOR=plain)

    assert document["in_force"] == [
        {
            "device": "cuda:1",
            "asked": plain,
            "origin": "allocator in ALLOTMENT_ALLOCATOR",
            "configured": True,
            "got": None,
            "error": None,
        }
    ]


def test_a_choice_for_all_devices_is_not_one_for_the_host(run_json, plain):
    (host,) = run_json("allocators", "cpu", ALLOTMENT_ALLOCATOR=plain)["in_force"]

    assert (host["asked"], host["configured"]) == ("host", False)


def test_checking_a_choice_that_cannot_be_has_exit_code_1_and_the_reason(run_json):
    environment = {"ALLOTMENT_PLATFORM": "sim:h200", "ALLOTMENT_ALLOCATOR": "not-there"}
    document = run_json("allocators", "cuda:0", "--check", exit_code=1, **environment)

    assert document["in_force"][0]["got"] is None
    assert "'not-there' is not installed" in document["in_force"][0]["error"]


def test_a_device_without_pools_draws_from_the_plain_allocator(run):
    assert "built in, the device has no memory pools" in run("allocators", "--platform", "sim:no-pools").stdout
