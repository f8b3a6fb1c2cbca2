from pathlib import Path

from allotment.configuration import PRECEDENCE, Origin, OriginKind
from allotment.configuration._origin import call_origin


def test_the_published_order_is_scope_call_environment_project_user_default():
    assert [level.kind.value for level in PRECEDENCE] == [
        "scope",
        "call",
        "environment",
        "project file",
        "user file",
        "default",
    ]


def test_every_kind_of_place_has_one_row():
    assert sorted(level.kind.name for level in PRECEDENCE) == sorted(OriginKind.__members__)


def test_the_rank_of_an_origin_is_its_row():
    assert Origin(OriginKind.SCOPE, "x").rank == 0
    assert Origin(OriginKind.CALL, "x").rank < Origin(OriginKind.ENVIRONMENT, "x").rank


def test_an_origin_reads_as_its_place():
    assert str(Origin(OriginKind.ENVIRONMENT, "ALLOTMENT_PLATFORM")) == "ALLOTMENT_PLATFORM"


def test_the_origin_of_a_call_names_the_file_and_line_of_the_caller():
    origin = call_origin("configure()")
    assert origin.kind is OriginKind.CALL
    assert origin.place.startswith(f"configure() at {Path(__file__)}:")
