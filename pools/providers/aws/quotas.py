"""Quotas of the account, as AWS reports them."""

from collections.abc import Mapping

from pools.providers.aws.account import Account
from pools.providers.aws.errors import code_of
from project.kernel.outbox.operations import ProviderError, QuotaExceeded

# The quota behind an error, and what it counts.
QUOTAS: Mapping[str, tuple[str, str]] = {
    "TooManyLoadBalancers": ("network-load-balancers", "network load balancers in the region"),
    "TooManyTargetGroups": ("target-groups", "target groups in the region"),
    "TooManyListeners": ("listeners-per-network-load-balancer", "listeners a load balancer"),
    "TooManyTargets": ("targets-per-network-load-balancer", "targets a load balancer"),
    "TooManyCertificates": (
        "certificates-per-network-load-balancer",
        "certificates a load balancer",
    ),
}


def read_quotas(account: Account) -> dict[str, int]:
    answers = account.pages("DescribeAccountLimits", "Limits")
    return {each["Name"]: int(each["Max"]) for each in answers if str(each["Max"]).isdigit()}


def explain_quota(account: Account, error: QuotaExceeded) -> QuotaExceeded:
    """The error with the quota of this account. Without the right to read quotas: the error."""
    name, what = QUOTAS.get(code_of(error), ("", ""))
    if not name:
        return error
    try:
        most = read_quotas(account).get(name)
    except ProviderError:
        return error
    if most is None:
        return error
    return QuotaExceeded(f"{error} The account {account.id} may have {most:,} {what} ({name}).")
