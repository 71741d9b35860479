"""Faults of a configuration that only AWS knows, each at its field. An account that does not answer
causes no fault.
"""

from collections.abc import Iterator

from pools.providers.aws.account import Account
from pools.providers.aws.errors import code_of
from pools.providers.aws.inventory import read_balancers
from pools.providers.aws.names import find_balancer_fault, find_certificate_fault
from pools.providers.aws.options import AwsOptions
from pools.providers.base import PoolSnapshot
from project.kernel.errors import FieldError
from project.kernel.outbox.operations import (
    Misconfigured,
    NotFoundOutside,
    Postponed,
    ProviderError,
    Unauthorised,
)

NEEDED_ADDRESSES = 8  # free addresses of each subnet of a new load balancer


def find_faults(account: Account, pool: PoolSnapshot, options: AwsOptions) -> list[FieldError]:
    found: list[FieldError] = []
    try:
        account.call("DescribeLoadBalancers", PageSize=1)
        found += _check_certificate(account, options)
        found += _check_subnets(account, options)
        found += _check_members(account, pool)
    except Unauthorised as error:
        found.append(FieldError("provider", str(error)))
    except (ProviderError, Postponed):
        pass  # the pool shows the error
    return found


def _check_certificate(account: Account, options: AwsOptions) -> Iterator[FieldError]:
    if options.certificate and (
        fault := find_certificate_fault(options.certificate, account.region, account.id)
    ):
        yield FieldError("provider.certificate", fault.message, fault.way_out)


def _check_subnets(account: Account, options: AwsOptions) -> Iterator[FieldError]:
    vpc, zones = "", dict[str, str]()
    for i, name in enumerate(options.subnets):
        where = f"provider.subnets[{i}]"
        try:
            subnet = account.describe_subnets([name])["Subnets"][0]
        except Misconfigured as error:
            if not code_of(error).startswith("InvalidSubnetID"):
                raise
            message = f"There is no subnet {name} in {account.region}."
            yield FieldError(where, message, f"Name a subnet of the account {account.id}.")
            continue
        vpc = vpc or subnet["VpcId"]
        zone = subnet["AvailabilityZone"]
        if subnet["VpcId"] != vpc:
            message = f"{name} is in {subnet['VpcId']}, and the first subnet is in {vpc}."
            yield FieldError(where, message, "Name subnets of one VPC.")
        elif other := zones.get(zone):
            message = f"{name} is in the zone {zone}, as {other} is."
            yield FieldError(where, message, "Name one subnet of each zone.")
        zones[zone] = name
        if (free := int(subnet["AvailableIpAddressCount"])) < NEEDED_ADDRESSES:
            message = f"{name} has {free} free addresses, and a new load balancer needs 8."
            yield FieldError(where, message, "Free addresses, or name another subnet.")


def _check_members(account: Account, pool: PoolSnapshot) -> Iterator[FieldError]:
    """The load balancers that the user names."""
    for i, member in enumerate(pool.members):
        if not member.external_id or member.is_owned:
            continue
        where, arn = f"members.list[{i}].external_id", member.external_id
        if fault := find_balancer_fault(arn, account.region, account.id):
            yield FieldError(where, fault.message, fault.way_out)
            continue
        try:
            answer = account.call("DescribeLoadBalancers", LoadBalancerArns=[arn])
        except NotFoundOutside:
            message = f"There is no load balancer {arn}."
            yield FieldError(where, message, "Name a network load balancer that exists.")
            continue
        if not read_balancers(answer["LoadBalancers"]):
            yield FieldError(where, f"{arn} is of another type.", "Name a network load balancer.")
