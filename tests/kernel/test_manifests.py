"""Manifests: all faults are reported at once, differences are shown first, and apply is
idempotent and atomic.
"""

from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from project.kernel import manifests
from project.kernel.actor import current_actor
from project.kernel.errors import FieldError, Invalid, Refused
from project.kernel.events.log import record
from project.kernel.manifests import (
    ManifestChange,
    ManifestKind,
    apply_documents,
    export_documents,
    read_files,
    register_kind,
)
from project.kernel.models import Event

pytestmark = pytest.mark.django_db


class Shelf:
    """A kind with things in it: the spec has a number of books, which may be neither
    negative nor odd.
    """

    def __init__(self) -> None:
        self.things: dict[str, dict[str, Any]] = {}
        self.refuses: set[str] = set()
        self.actors: list[str] = []

    def validate(self, name: str, spec: Any) -> list[FieldError]:
        faults = [
            FieldError(key, "is not known", "Known: books.") for key in spec if key != "books"
        ]
        if spec.get("books", 0) < 0:
            faults.append(FieldError("books", "is negative"))
        if spec.get("books", 0) % 2:
            faults.append(FieldError("books", "is odd", "Add one."))
        return faults

    def diff(self, name: str, spec: Any) -> list[ManifestChange]:
        here = self.things.get(name)
        if here is None:
            return [ManifestChange("", None, "new")]
        return [ManifestChange(k, here.get(k), v) for k, v in spec.items() if here.get(k) != v]

    def apply(self, name: str, spec: Any, reason: str) -> None:
        if name in self.refuses:
            raise Refused(f"{name} may not change.")
        record("apply", reason=reason)
        self.things[name] = dict(spec)
        self.actors.append(current_actor())

    def export(self) -> Any:
        return sorted(self.things.items())


@pytest.fixture(autouse=True)
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.setattr(manifests, "_kinds", {})
    monkeypatch.setattr("project.kernel.management.base.discover", lambda name: None)
    monkeypatch.setattr("project.kernel.management.commands.export.discover", lambda name: None)
    found = Shelf()
    register_kind(ManifestKind("shelf", found.validate, found.diff, found.apply, found.export))
    return found


TWO = """
kind: shelf
name: a
books: 2
---
kind: shelf
name: b
books: 4
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shelves.yaml"
    path.write_text(TWO)
    return path


def faults(text: str) -> list[str]:
    with pytest.raises(Invalid) as caught:
        read_files([(text, "f")])
    return [f"{e.field}: {e.message}" for e in caught.value.fields] or [caught.value.detail]


def test_five_faults_get_five_messages_with_their_places():
    found = faults("kind: shelf\nname: a\nbooks: -1\nbookz: 1\n---\nkind: shelv\nname: ''\n")
    assert len(found) == 5
    assert any(f.startswith("f:1: shelf a: bookz") for f in found)
    assert any("f:6" in f and "'shelv' is not a kind" in f for f in found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n- b", "a mapping with kind, name"),
        ("kind: shelf", "needs a name"),
        ("kind: shelf\nname: a\n1: 2", "must be text"),
        ("kind: [x]\nname: a", "is not a kind"),
        ("kind: shelf\nkind: shelf\nname: a", "'kind' is given twice"),
        ("kind: shelf\nname: a\nbooks: {x: 2, x: 4}", "'x' is given twice"),
        ("kind: shelf\nname: a\nbooks: &x 2\nother: *x", "aliases are not read"),
        ("kind: {", "not valid YAML"),
        ("kind: !!python/object:os.system x", "not valid YAML"),
        ("kind: shelf\nname: a\x00", "not valid YAML"),
        (TWO + "---\nkind: shelf\nname: a", "is already defined at"),
        ("[" * 5000, "not valid YAML"),
        ("x" * (manifests.LARGEST + 1), "larger than"),
    ],
)
def test_malformed_file_is_refused(text, said):
    assert any(said in f for f in faults(text)), faults(text)


def test_empty_file_changes_nothing():
    assert read_files([("---\n", "f")]) == read_files([("", "f")]) == []


def test_manifest_is_applied_once_and_then_unchanged(shelf, file, capsys):
    call_command("apply", "-f", str(file), "--reason", "spring")
    assert shelf.things == {"a": {"books": 2}, "b": {"books": 4}}
    assert "+ shelf a: new" in capsys.readouterr().out
    assert set(Event.objects.values_list("reason", flat=True)) == {"spring"}
    assert all(actor.startswith("shell:") for actor in shelf.actors)
    call_command("apply", "-f", str(file))
    assert "0 changed, 2 as they are." in capsys.readouterr().out
    assert Event.objects.count() == 2


def test_dry_run_shows_differences_and_changes_nothing(shelf, file, capsys):
    shelf.things["a"] = {"books": 6}
    call_command("apply", "-f", str(file), "--dry-run")
    out = capsys.readouterr().out
    assert "~ shelf a: books: 6 -> 2" in out
    assert "2 would change" in out
    assert shelf.things == {"a": {"books": 6}}


def test_fault_anywhere_changes_nothing(shelf, file):
    file.write_text(TWO.replace("books: 4", "books: 5"))
    with pytest.raises(CommandError, match="is odd Add one."):
        call_command("apply", "-f", str(file))
    assert shelf.things == {}


def test_faults_of_all_files_are_reported_at_once(shelf, tmp_path):
    texts = {
        "one": "kind: shelf\nname: a\nbooks: 3\n",
        "two": "kind: shelf\nname: b\nbooks: -2\n",
        "three": "a: [\n",
        "four": "kind: shelf\nname: a\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(CommandError) as caught:
        call_command("apply", *[word for name in texts for word in ("-f", str(tmp_path / name))])
    said = str(caught.value)
    assert "4 faults" in said
    assert all(
        words in said
        for words in (
            "is odd",
            "is negative",
            "three: The file is not valid YAML",
            "is already defined at",
        )
    )
    assert shelf.things == {}
    with pytest.raises(
        CommandError,
        match=r"2 faults(.|\n)*none: The file cannot be(.|\n)*nothing: The file cannot be read",
    ):
        call_command(
            "apply",
            "-f",
            str(tmp_path / "none"),
            "-f",
            str(tmp_path / "one"),
            "-f",
            str(tmp_path / "nothing"),
        )


def test_refusal_in_the_middle_rolls_back_earlier_changes(shelf, file):
    shelf.refuses.add("b")
    with pytest.raises(Refused):
        apply_documents(read_files([(TWO, "f")]))
    assert not Event.objects.exists()


def test_diff_exit_code_reports_differences(shelf, file, capsys):
    with pytest.raises(SystemExit) as left:
        call_command("diff", "-f", str(file))
    assert left.value.code == 1
    call_command("apply", "-f", str(file))
    capsys.readouterr()
    call_command("diff", "-f", str(file))
    assert capsys.readouterr().out.count("as it is") == 2


def test_diff_exit_code_of_a_fault_differs(tmp_path):
    with pytest.raises(CommandError, match="cannot be read") as caught:
        call_command("diff", "-f", str(tmp_path / "none.yaml"))
    assert caught.value.returncode == 2


def test_exported_manifest_has_no_differences(shelf, file, tmp_path, capsys):
    call_command("apply", "-f", str(file))
    capsys.readouterr()
    call_command("export")
    again = tmp_path / "again.yaml"
    again.write_text(capsys.readouterr().out)
    call_command("diff", "-f", str(again))


def test_export_can_be_limited_to_names(shelf):
    shelf.things = {"a": {}, "b": {}}
    assert "name: b" not in export_documents("shelf", ["a"])
    with pytest.raises(Invalid, match="There is no shelf c"):
        export_documents("shelf", ["a", "c"])
    with pytest.raises(Invalid, match="no kind box"):
        export_documents("box")


def test_documents_are_ordered_by_kind(shelf):
    register_kind(
        ManifestKind("room", shelf.validate, shelf.diff, shelf.apply, shelf.export, order=-1)
    )
    found = read_files([("kind: shelf\nname: a\n---\nkind: room\nname: z\n", "f")])
    assert [(d.kind.name, d.name) for d in found] == [("room", "z"), ("shelf", "a")]
    with pytest.raises(ValueError, match="twice"):
        register_kind(ManifestKind("room", shelf.validate, shelf.diff, shelf.apply, shelf.export))
