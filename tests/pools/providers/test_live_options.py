"""Each option of a pool of load balancers may change while members exist, or leads elsewhere."""

import pytest

from pools.providers.base import known_providers

LEADS_ELSEWHERE = {
    "aws": {"region", "endpoint", "endpoint_sts", "endpoint_ec2"},
    "tencent": {"region", "endpoint"},
    "forwarder": set[str](),
}


@pytest.mark.parametrize("kind", LEADS_ELSEWHERE)
def test_only_options_that_lead_elsewhere_are_fixed(kind: str) -> None:
    provider = known_providers()[kind]
    options = {name.partition(".")[0] for name in provider.option_fields}
    assert not set(provider.live_options) & set(provider.rolled)
    assert {*provider.live_options, *provider.rolled} == options - LEADS_ELSEWHERE[kind]
