import pytest

from allotment.access import RULES

ROW = {"accessor", "owner", "kind", "verdict", "rule", "reason", "remedy"}
GRANT = {
    "accessor",
    "owner",
    "peer_access_supported",
    "peer_access_enabled",
    "mempool_access_supported",
    "mempool_access_enabled",
}
RULE = {"id", "accessor", "memory", "condition", "verdict", "reason", "remedy"}
ON_H200 = ("--platform", "sim:2xh200")


def test_the_document_has_the_keys_that_the_help_names(run, run_json):
    document, rules = run_json("access", *ON_H200), run_json("access", "--table")
    told = run("access", "--help").output

    assert set(document) == {"platform", "access", "grants"}
    assert all(set(row) == ROW for row in document["access"])
    assert all(set(row) == GRANT for row in document["grants"])
    assert all(set(row) == RULE for row in rules["rules"])
    assert all(key in told for key in {*document, *ROW, *GRANT, *RULE, "rules"})


def test_two_devices_are_told_kind_by_kind(run_json):
    document = run_json("access", "cuda:0", "cuda:1", *ON_H200)
    found = {row["kind"]: (row["verdict"], row["rule"]) for row in document["access"]}

    assert found == {
        "CUDA_DEVICE": ("inaccessible", "peer-not-enabled"),
        "CUDA_MEMPOOL": ("inaccessible", "pool-not-granted"),
        "CUDA_MANAGED": ("accessible", "managed-by-device"),
    }
    (grant,) = document["grants"]
    assert (grant["peer_access_supported"], grant["peer_access_enabled"]) == (True, False)
    assert (grant["mempool_access_supported"], grant["mempool_access_enabled"]) == (True, False)


def test_the_remedy_names_the_call_for_these_devices(run):
    told = run("access", "cuda:0", "cuda:1", *ON_H200).stdout

    assert 'set_peer_access_enabled("cuda:1", "cuda:0", True)' in told
    assert "pool access" in told


def test_one_device_is_told_against_all(run_json):
    rows = run_json("access", "cpu", *ON_H200)["access"]

    assert {row["accessor"] for row in rows} == {"cpu"}
    assert {row["owner"] for row in rows} == {"cpu", "cuda:0", "cuda:1"}


def test_without_devices_it_shows_the_matrix_of_the_machine(run):
    lines = [line.split() for line in run("access", *ON_H200).stdout.splitlines()]

    assert ["cpu", "HOST", "yes", "no", "no"] in lines
    assert ["cuda:0", "CUDA_MEMPOOL", "no", "yes", "no"] in lines
    assert ["cuda:1", "CUDA_MANAGED", "yes", "yes", "yes"] in lines
    assert ["cuda:0", "cuda:1", "supported", "supported"] in lines


def test_without_a_gpu_there_is_the_host(run_json):
    (row,) = run_json("access")["access"]

    assert (row["owner"], row["kind"], row["verdict"]) == ("cpu", "HOST", "accessible")


@pytest.mark.parametrize(
    ("profile", "host", "managed"),
    [
        ("gh200", "accessible", "accessible"),
        ("gb10", "accessible", "accessible"),
        ("wsl", "inaccessible", "inaccessible"),
    ],
)
def test_each_machine_is_told_as_it_is(run_json, profile, host, managed):
    rows = run_json("access", "--platform", f"sim:{profile}")["access"]
    found = {(row["accessor"], row["owner"], row["kind"]): row["verdict"] for row in rows}

    assert found["cuda:0", "cpu", "HOST"] == host
    assert found["cpu", "cuda:0", "CUDA_MANAGED"] == managed


def test_a_device_without_pools_has_no_row_of_pools(run_json):
    rows = run_json("access", "cpu", "cuda:0", "--platform", "sim:no-pools")["access"]

    assert "CUDA_MEMPOOL" not in {row["kind"] for row in rows}


def test_the_table_has_all_rules_in_their_order(run, run_json):
    assert [row["id"] for row in run_json("access", "--table")["rules"]] == [rule.id for rule in RULES]
    lines = run("access", "--table").stdout.splitlines()[1:]
    assert [line.split()[0] for line in lines] == [rule.id for rule in RULES]


def test_an_unknown_device_is_an_error(run):
    result = run("access", "cuda:9", *ON_H200)

    assert result.exit_code == 1
    assert "cuda:9" in result.stderr
