"""A provider that only this file declares appears wherever providers appear, and a package below
pools/providers is found by itself: no other file names the provider. The tests hold with any
further provider in Berth's code.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

import pools.providers
from pools.config.fields import Fields, Option
from pools.config.parsing import Described, Faults
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    Observation,
    PoolSnapshot,
    Provider,
    Seen,
    known_providers,
)
from pools.providers.display import OptionField, OptionForm, ProviderTexts
from project.celery import add_queues, app
from project.settings.environment import list_providers
from tests.dashboard.helpers import chief
from tests.dashboard.plain_browser import DIALOG, browser_of, get, html_of

TEXTS = ProviderTexts(
    choice="bricks of a kiln",
    adding="Berth creates a brick for each.",
    takes_claims="They take claims once the kiln runs them.",
    creating="The kiln was asked for it.",
)


class KilnProvider(Provider):
    kind: ClassVar[str] = "kiln"
    queue: ClassVar[str] = "kiln"
    is_owner: ClassVar[bool] = True
    option_fields: ClassVar[Fields] = Fields(
        {
            name: Option(Described({}), "")
            for name in (
                "namespace",
                "job",
                "url",
            )
        }
    )
    rolled: ClassVar[tuple[str, ...]] = ("namespace", "job")
    texts: ClassVar[ProviderTexts] = TEXTS
    form: ClassVar[OptionForm | None] = OptionForm(
        "Bricks",
        (
            OptionField("namespace", "Kiln namespace", "Empty: default"),  # pods have one, too
            OptionField("job.name", "Job"),
        ),
    )

    @classmethod
    def read_options(
        cls, options: Mapping[str, Any], where: str, faults: Faults
    ) -> Mapping[str, Any]:
        read = super().read_options(options, where, faults)
        if not (read.get("job") or {}).get("name"):
            faults.add(f"{where}.job.name", "A job is missing.", "Name one.")
        return {name: value for name, value in read.items() if name != "kind"}

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        return MemberReport(is_ready=True, is_gone=member.state == "deleting")

    def look(self, pool: PoolSnapshot) -> Observation:
        return Observation(tuple(Seen(member.id) for member in pool.members))


@pytest.fixture(autouse=True)
def _registered(settings: Any) -> None:
    settings.BERTH_PROVIDERS = [*settings.BERTH_PROVIDERS, f"{__name__}.KilnProvider"]


def make_kiln_pool() -> Pool:
    provider = {"kind": "kiln", "namespace": "ci", "url": "http://n/", "job": {"name": "agent"}}
    return create_pool(
        {"name": "lab", "slots": 2, "provider": provider, "members": {"max": 3, "list": ["a"]}}
    )


@pytest.mark.django_db
def test_the_form_of_a_new_pool_offers_it_with_its_options_and_makes_a_pool() -> None:
    client = browser_of(chief())
    shown = get(client, "/pools/new/")
    assert '<option value="kiln">kiln: bricks of a kiln</option>' in shown
    assert '<fieldset data-provider="kiln"> <legend>Bricks</legend>' in shown

    fields = {
        "name": "lab", "provider": "kiln", "form": "plain", "count": "2",
        "provider.kiln.namespace": "ci", "provider.kiln.job.name": "",
        "provider.kubernetes.namespace": "of the section that is not chosen",
    }  # fmt: skip
    refused = client.post("/pools/new/", fields)
    assert refused.status_code == 422
    assert 'id="f-provider.kiln.job.name-e"' in html_of(refused), "the fault is at its field"

    made = client.post("/pools/new/", fields | {"provider.kiln.job.name": "agent"})
    assert made.status_code == 302
    assert Pool.objects.get().spec["provider"] == {
        "kind": "kiln",
        "namespace": "ci",
        "job": {"name": "agent"},
    }


@pytest.mark.django_db
def test_the_form_of_its_pool_changes_its_options_and_keeps_the_others() -> None:
    make_kiln_pool()
    client = browser_of(chief())
    shown = get(client, "/pools/lab/edit/")
    assert 'name="provider.kiln.job.name" value="agent"' in shown
    assert "provider.kubernetes" not in shown
    changed = client.post(
        "/pools/lab/edit/",
        {"members.max": "3", "revision": "1", "provider.kiln.namespace": "",
         "provider.kiln.job.name": "agent-2"},
    )  # fmt: skip
    assert changed.status_code == 302, html_of(changed)
    assert Pool.objects.get().spec["provider"] == {
        "kind": "kiln",
        "url": "http://n/",
        "job": {"name": "agent-2"},
    }


@pytest.mark.django_db
def test_provider_texts_are_in_the_dialog_and_on_the_panel_of_a_member() -> None:
    make_kiln_pool()
    client = browser_of(chief())
    dialog = get(client, "/pools/lab/members/add/", **DIALOG)
    assert TEXTS.adding in dialog and TEXTS.takes_claims in dialog
    assert Member.objects.get().state == "creating"
    assert TEXTS.creating in get(client, "/pools/lab/?member=a")


def test_workers_perform_its_operations(settings: Any) -> None:
    before = app.conf.task_queues
    try:
        add_queues(app)
        assert {"default", "local", "kubernetes", "kiln"} <= set(app.conf.task_queues)
    finally:
        app.conf.task_queues = before


def test_package_of_a_provider_is_found_by_itself(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "big_kiln").mkdir()
    (tmp_path / "big_kiln" / "provider.py").write_text(
        f"from {__name__} import KilnProvider\n"
        "class BigKilnProvider(KilnProvider):\n    kind = 'big_kiln'\n"
    )
    (tmp_path / "helpers").mkdir()  # no provider
    found = list_providers(tmp_path)
    assert found == ["pools.providers.big_kiln.provider.BigKilnProvider"]
    monkeypatch.setattr(pools.providers, "__path__", [*pools.providers.__path__, str(tmp_path)])
    settings.BERTH_PROVIDERS = [*list_providers(), *found]
    kinds = list(known_providers())
    assert kinds[:3] == ["static", "local", "agents"]
    assert kinds[3:-1] == sorted(kinds[3:-1])
    assert kinds[-1] == "big_kiln"


def test_a_worker_stops_where_a_provider_cannot_be_loaded(settings: Any) -> None:
    settings.BERTH_PROVIDERS = ["pools.nowhere.Provider"]
    with pytest.raises(SystemExit, match=r"BERTH_PROVIDERS: .*pools\.nowhere"):
        add_queues(app)
