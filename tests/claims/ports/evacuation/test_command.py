"""`manage.py evacuate` previews, orders and undoes an evacuation."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tests.claims.helpers import member
from tests.claims.ports.evacuation.helpers import claim_routed, members_of, step
from tests.claims.ports.quay import make_quay

pytestmark = pytest.mark.usefixtures("committed_tables")


def run(*words: str) -> str:
    out = StringIO()
    call_command("evacuate", *words, stdout=out)
    return out.getvalue()


def test_command_previews_orders_and_undoes() -> None:
    make_quay(members=2)
    claim = claim_routed()
    owner = claim.owner or claim.requested_by
    assert run("lb/lb0") == (
        "lb0 is not being evacuated. Preview for 1 claim:\n"
        f"  {claim.id} {owner}, tcp 30000: moves to lb1 30000\n"
    )
    assert "0 of 1 claim moved" in run("lb/lb0", "--reason", "under attack")
    step(member("lb0").pk)
    assert "moving to lb1 30000" in run("lb/lb0")
    assert "is not being evacuated" in run("lb/lb0", "--undo")
    assert members_of(claim) == ["lb0"]
    with pytest.raises(CommandError, match="There is no member"):
        run("lb/other")
