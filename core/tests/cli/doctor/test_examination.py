import allotment as al
from allotment.cli.doctor import Severity, _examination
from allotment.cli.doctor._examination import examine


def test_a_look_that_fails_is_a_finding_and_the_others_go_on(monkeypatch):
    def explode():
        raise OSError("cannot look")

    looks = (("devices", explode), *_examination._ON_DEVICES)
    monkeypatch.setattr(_examination, "_ON_DEVICES", looks)
    found = examine()

    assert any(each.severity is Severity.PROBLEM and "OSError: cannot look" in each.text for each in found)
    assert any("copied back and compared" in each.text for each in found)


def test_a_platform_that_does_not_exist_ends_the_examination_with_the_reason():
    last = examine("sim:none-such")[-1]

    assert last.severity is Severity.PROBLEM
    assert "there is no such profile" in last.text


class Telling:
    def allocate(self, size_in_bytes):
        return 4096

    def deallocate(self, ptr, size_in_bytes):
        pass

    @classmethod
    def diagnosis(cls):
        return "its fast path was not compiled"


def test_what_a_plugin_has_to_tell_is_a_warning():
    al.register_allocator("telling", Telling)

    (told,) = [each for each in examine() if each.subject == "plugin" and each.text.startswith("telling")]

    assert told.severity is Severity.WARNING
    assert told.text.endswith("its fast path was not compiled")
