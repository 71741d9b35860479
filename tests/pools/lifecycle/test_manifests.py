"""Pools as files: diff before apply, applied whole and idempotently, exported in the same form."""

from contextlib import nullcontext
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from pools.models import Member, Pool
from project.kernel.models import Event
from tests.slots.helpers import hold, is_consistent

pytestmark = pytest.mark.django_db

GOOD = """
kind: Pool
name: lab
description: benches
slots: 2
members:
  max: 4
  list: [a, {name: b, labels: {zone: x}, slots: 3}]
lease: {acknowledge: 30s, hold: 60m}
---
kind: Pool
name: net
slots: {ports: "30000-30049", shared: true}
members: {list: [{name: lb, external_id: lb-1, foreign: [30003]}]}
liveness: {heartbeat: 120s}
"""
BAD = """
kind: Pool
name: Lab
slots: [any, plna]
members: {min: 4, max: 2}
colour: red
---
kind: Pool
name: net
slots: {ports: "40000-30000", shared: true}
"""


def run(command: str, *args: str, file: Path | None = None) -> str:
    out = StringIO()
    # As diff does: 1 says that there is a difference.
    with pytest.raises(SystemExit) if command == "diff" else nullcontext():
        call_command(command, *args, *(["-f", str(file)] if file else []), stdout=out)
    return out.getvalue()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pools.yaml"
    path.write_text(GOOD)
    return path


def test_apply_makes_what_diff_shows_and_is_idempotent(file: Path) -> None:
    assert "+ Pool lab" in run("diff", file=file)
    assert "2 would change" in run("apply", "--dry-run", file=file)
    assert not Pool.objects.exists()
    run("apply", "--reason", "first", file=file)
    assert set(Pool.objects.values_list("name", flat=True)) == {"lab", "net"}
    assert Member.objects.count() == 3
    events = Event.objects.count()
    assert "2 as they are" in run("apply", file=file)
    assert Event.objects.count() == events
    assert is_consistent()


def test_exported_pools_apply_without_a_change(file: Path, tmp_path: Path) -> None:
    run("apply", file=file)
    exported = run("export")
    again = tmp_path / "again.yaml"
    again.write_text(exported)
    assert "0 changed, 2 as they are" in run("apply", file=again)
    hold(Pool.objects.get(name="lab"))
    assert run("export") == exported


def test_invalid_file_reports_faults_of_all_documents_and_changes_nothing(file: Path) -> None:
    file.write_text(BAD)
    with pytest.raises(CommandError) as caught:
        run("apply", file=file)
    told = str(caught.value)
    for field in ("colour", "name", "slots[1]", "members.min", "slots.ports"):
        assert f": {field}:" in told, told
    assert told.startswith("5 faults, nothing was changed")
    assert not Pool.objects.exists()


def test_conflict_with_the_present_state_stops_the_whole_file(file: Path) -> None:
    run("apply", file=file)
    file.write_text(
        GOOD.replace("description: benches", "description: new").replace(
            "30000-30049", "30000-30059"
        )
    )
    with pytest.raises(CommandError, match="slots.ports"):
        run("apply", file=file)
    assert Pool.objects.get(name="lab").spec["description"] == "benches"


def test_change_is_shown_by_field_and_members_follow_the_list(file: Path) -> None:
    run("apply", file=file)
    hold(Pool.objects.get(name="lab"))
    file.write_text(
        GOOD.replace(
            "[a, {name: b, labels: {zone: x}, slots: 3}]",
            "[{name: b, labels: {zone: y}, slots: 3}, c]",
        )
    )
    shown = run("diff", file=file)
    assert "- Pool lab: members.list.a" in shown
    assert "+ Pool lab: members.list.c" in shown
    assert "~ Pool lab: members.list.b.labels.zone: x -> y" in shown
    run("apply", file=file)
    assert Member.objects.get(name="a").is_leaving  # it holds a claim
    assert Member.objects.get(name="b").labels == {"zone": "y"}
    assert Member.objects.get(name="c").state == "ready"
    assert "2 as they are" in run("apply", file=file)


def test_file_without_a_member_list_keeps_the_members(file: Path) -> None:
    run("apply", file=file)
    file.write_text(
        "kind: Pool\nname: lab\nslots: 2\ndescription: benches\n"
        "members: {max: 4}\nlease: {acknowledge: 30s, hold: 1h}\n"
    )
    assert "1 as they are" in run("apply", file=file)
    assert Member.objects.filter(pool__name="lab").count() == 2
