"""A Kubernetes pool in a real browser: the pod fields of the form, refusals at their field,
provider errors on the page.
"""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from project.kernel.outbox.operations import Misconfigured
from slots.members.provider_status import clear_provider_error, record_provider_error
from tests.axe import find_faults
from tests.dashboard.helpers import chief
from tests.dashboard.screenshots import shoot_all
from tests.dashboard.test_browser import open_live
from tests.pools.providers.kubernetes.harness import KubeHarness

pytestmark = pytest.mark.browser

SignIn = Callable[[Any, User], None]


def test_form_shows_pod_fields_and_a_refusal_at_its_field(other: Any, sign_in: SignIn) -> None:
    """The web process has no kubeconfig, so no context is known there."""
    page = other
    sign_in(page, chief())
    page.goto("/pools/new/")
    image = page.locator("[name='provider.kubernetes.template.image']")
    assert not image.is_visible(), "of no use where members are no pods"
    page.select_option("[name=provider]", "kubernetes")
    page.fill("[name=name]", "infra")
    page.locator("[name=form][value=tasks]").check()
    image.fill("registry.example/agent:1")
    page.fill("[name='provider.kubernetes.context']", "prod-eu")
    page.fill("[name='provider.kubernetes.url']", "http://berth.example/")
    shoot_all(page, "form")
    page.get_by_role("button", name="Create pool").click()
    page.get_by_text("There is no kubeconfig at").first.wait_for()
    assert page.locator("[name='provider.kubernetes.context'][aria-invalid=true]").count() == 1
    assert image.input_value() == "registry.example/agent:1"
    assert find_faults(page) == []
    shoot_all(page, "refused")
    assert not Pool.objects.exists()


def test_provider_error_is_shown_on_the_pool_page_until_fixed(
    page: Any, bench: KubeHarness, sign_in: SignIn, site: str
) -> None:
    config = {
        "name": "infra",
        "provider": {"kind": "kubernetes", **bench.good_options},
        "slots": ["any", "plan"],
    }
    pool = create_pool({**config, "members": {"max": 4, "list": ["a", "b"]}})
    Pool.objects.update(state="active", observed_at=timezone.now())
    Member.objects.filter(name="a").update(
        outside="Unschedulable: 0/3 nodes are available: 3 Insufficient memory"
    )
    sign_in(page, chief())
    open_live(page, "/pools/infra/?member=a")
    assert page.get_by_text("0/3 nodes are available").first.is_visible()
    record_provider_error(
        pool,
        Misconfigured(
            "There is no namespace agents of context prod. Make the namespace, with its role."
        ),
    )
    page.get_by_text("Make the namespace, with its role").wait_for()
    assert find_faults(page) == []
    shoot_all(page, "trouble")
    pool.refresh_from_db()
    clear_provider_error(pool)
    page.get_by_text("Make the namespace, with its role").wait_for(state="detached")
