"""The calls to AWS and Tencent Cloud on the tab Ports: the real providers, their budgets in the
database, and strict clouds that throttle.
"""

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from claims.ports.backends import BackendRequest, set_backend
from pools.lifecycle.services import create_pool
from pools.providers.aws.account import CALLS, RATES
from pools.providers.aws.provider import AwsProvider
from pools.providers.pacing import SharedPacer
from pools.providers.tencent.client import BURST
from pools.providers.tencent.provider import TencentProvider
from project.kernel.models import Operation
from project.kernel.outbox.operations import perform_due
from tests.claims.helpers import ask
from tests.claims.ports.sites import SITES, Site, is_ready, route
from tests.dashboard.helpers import chief
from tests.dashboard.plain_browser import browser_of, get
from tests.pools.providers.tencent.clb_world import Fault

pytestmark = pytest.mark.django_db(transaction=True)

TAB = "/pools/games/?tab=ports"


@pytest.fixture(params=SITES)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with SITES[request.param]() as found, pytest.MonkeyPatch.context() as patch:
        for provider in (AwsProvider, TencentProvider):
            patch.setattr(provider, "pacer", SharedPacer())
        yield found


def throttle_once(site: Site) -> str:
    """The name of the budget that has the throttled call."""
    if site.kind == "aws":
        site.cloud.fail("ThrottlingException", action="DescribeListeners")
        return "read"
    site.cloud.faults.append(Fault("DescribeListeners", "RequestLimitExceeded"))
    return "DescribeListeners"


def count_calls(site: Site) -> Counter[str]:
    """The calls that the cloud has seen, by the budget that they belong to."""
    actions = Counter(each.action for each in site.cloud.log)
    if site.kind != "aws":
        return actions
    found = Counter[str]()
    for action, bucket in CALLS.items():
        found[bucket] += actions[action]
    return found


def rows_of(text: str) -> dict[str, list[str]]:
    """What is left, spent today and throttled, by the name of the budget."""
    rows = re.findall(r'<tr data-key="b(\w+)">(.*?)</tr>', text, re.DOTALL)
    return {name: re.findall(r'<td class="num">(.*?)</td>', row) for name, row in rows}


def test_all_used_budgets_are_shown_with_what_is_left_and_throttled(site: Site) -> None:
    site.make()
    claim = route(ask("games", ports="80/TCP"))
    site.work_until(lambda: is_ready(claim))
    throttled = throttle_once(site)
    backend = BackendRequest("10.0.1.9", port=80)
    set_backend(claim_id=claim.id, generation=claim.generation, backend=backend)
    perform_due(site.kind)
    waiting = Operation.objects.filter(done_at=None, error_code="throttled").count()
    assert waiting >= 1
    text = re.sub(r"\s+", " ", get(browser_of(chief()), TAB))
    rows = rows_of(text)
    assert {name: cells[1] for name, cells in rows.items()} == {
        name: str(count) for name, count in count_calls(site).items() if count
    }
    assert {name: cells[2] for name, cells in rows.items()} == {
        name: str(int(name == throttled)) for name in rows
    }
    for name, cells in rows.items():
        left, burst = map(int, cells[0].split(" of "))
        assert burst == (RATES[name][1] if site.kind == "aws" else BURST)
        assert 0 <= left <= burst
    if site.kind == "aws":
        assert set(rows) == set(RATES)
    rate = "19.5" if site.kind == "tencent" else r"(3|4|10)"
    said = re.search(rf"Tightest budget: (\w+), \d+ of \d+ calls left, {rate} per second", text)
    assert said is not None and said[1] in rows, "a budget of the table, not of no call"
    assert "“" not in text.split("Calls to the provider")[1], "no internal key"
    assert f"{waiting} waiting after a throttled call" in text
    assert "Throttled today: 1, last" in text
    assert "no call budget" not in text


def test_budgets_are_not_denied_before_the_first_look(site: Site) -> None:
    """The name of a budget contains the account, which the first look tells."""
    create_pool(site.config())
    text = get(browser_of(chief()), TAB)
    assert "The call budget is known after the first look at the pool." in text
