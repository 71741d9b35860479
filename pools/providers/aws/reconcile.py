"""Make the load balancer of a member equal to its rows: create, adopt, serve, delete."""

from collections.abc import Collection, Iterable

from pools.providers.aws.account import Account
from pools.providers.aws.errors import code_of, set_apart
from pools.providers.aws.inventory import (
    NetworkBalancer,
    find_balancer,
    find_made,
    get_balancer,
    list_balancers,
    list_groups,
    list_listeners,
    read_balancers,
)
from pools.providers.aws.names import (
    ObjectOwner,
    balancer_name,
    installation_of,
    is_named_for,
    member_in,
    owner_of,
)
from pools.providers.aws.options import AwsOptions
from pools.providers.aws.port_calls import delete_group, delete_listener, write_tags
from pools.providers.aws.port_sync import PortSync
from pools.providers.aws.quotas import explain_quota
from pools.providers.base import MemberReport, MemberSnapshot, PoolSnapshot
from project.kernel.outbox.operations import (
    ConflictError,
    Misconfigured,
    NotFoundOutside,
    ProviderError,
    QuotaExceeded,
)

PROVISIONING = 10.0  # seconds until the next sync of a load balancer that AWS provisions
DELETING = 5.0


class BalancerGone(NotFoundOutside):
    """The load balancer does not exist. Other missing objects raise another error, so that their
    member does not count as gone.
    """


def check_place(account: Account, pool: PoolSnapshot) -> None:
    """Raises Misconfigured where the credentials lead to another account or region than the last
    look: a load balancer that is missing there is not gone.
    """
    if pool.place and pool.place != account.place:
        raise Misconfigured(
            f"Berth's credentials lead to {account.place}, and the load balancers of {pool.name} "
            f"are in {pool.place}. Berth treats none as gone and creates none. Give Berth "
            "credentials of that account; if it is gone for good, run: manage.py confirm_place "
            f"{pool.name} --reason …"
        )


def sync_member(
    account: Account, pool: PoolSnapshot, member: MemberSnapshot, options: AwsOptions
) -> MemberReport:
    check_place(account, pool)
    try:
        if member.state == "deleting":
            return _remove_member(account, pool, member)
        return _serve_member(account, pool, member, options)
    except BalancerGone:
        raise
    except NotFoundOutside as error:
        raise ProviderError(f"An object was removed during the call: {error}") from error


def _serve_member(
    account: Account, pool: PoolSnapshot, member: MemberSnapshot, options: AwsOptions
) -> MemberReport:
    balancer = find_balancer(account, pool, member)
    if balancer is None:
        balancer = _create_balancer(account, pool, member, options)
    if not balancer.is_live:
        return MemberReport(
            external_id=balancer.arn,
            addresses=balancer.addresses,
            why=balancer.why,
            again=PROVISIONING,
        )
    if member.state == "creating" and member.is_owned and options.is_crossing_zones:
        value = {"Key": "load_balancing.cross_zone.enabled", "Value": "true"}
        account.call(
            "ModifyLoadBalancerAttributes", LoadBalancerArn=balancer.arn, Attributes=[value]
        )
    return PortSync(account, pool, member, balancer, options).run()


def _create_balancer(
    account: Account, pool: PoolSnapshot, member: MemberSnapshot, options: AwsOptions
) -> NetworkBalancer:
    """Create the load balancer. An earlier attempt is found by its tags before, or, where AWS does
    not list it yet, returned by the repeated create.
    """
    if not member.is_owned and member.state == "creating":
        raise Misconfigured(
            f"The load balancer {member.external_id} of {member.name} does not exist. Name one "
            "that exists in external_id."
            if member.external_id
            else f"{member.name} names no load balancer. Write its ARN into external_id."
        )
    if member.state != "creating":
        raise BalancerGone(f"The load balancer of {member.name} does not exist.")
    if not options.subnets:
        raise Misconfigured("provider.subnets is missing: a load balancer needs subnets.")
    owner = owner_of(pool, member)
    groups = {"SecurityGroups": list(options.security_groups)} if options.security_groups else {}
    try:
        answer = account.call(
            "CreateLoadBalancer",
            Name=balancer_name(owner, options.prefix, f"{pool.name}-{member.name}"),
            Type="network",
            Scheme=options.scheme,
            Subnets=list(options.subnets),
            IpAddressType=options.ip_type,
            Tags=write_tags({**options.tags, **owner.tags}),
            **groups,
        )
    except QuotaExceeded as error:
        raise explain_quota(account, error) from error
    except ConflictError as error:
        if code_of(error) == "DuplicateLoadBalancerName":
            raise ConflictError(
                f"{error} A load balancer with this name exists and has not Berth's tags. Delete "
                "it, or set another provider.name_prefix."
            ) from error
        raise
    made = read_balancers(answer["LoadBalancers"])[0]
    # Success proves no ownership: AWS returns an existing load balancer with equal settings.
    if not owner.owns(account.read_tags([made.arn])[made.arn]):
        raise ConflictError(
            f"The load balancer {made.name} exists and has not Berth's tags. Delete it, or set "
            "another provider.name_prefix."
        )
    return made


# -- delete ----------------------------------------------------------------------------------------


def _remove_member(account: Account, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
    """Delete our listeners and target groups, then the load balancer if Berth created it."""
    draining = frozenset(slot.id for slot in member.slots if slot.state == "draining")
    there = get_balancer(account, member.external_id) if member.external_id else None
    made: list[NetworkBalancer] = []
    if member.is_owned:
        made = find_made(account, owner_of(pool, member))
        if there is not None and there.arn not in {each.arn for each in made}:
            raise ConflictError(
                f"The load balancer {there.name} no longer has Berth's tags, so Berth does not "
                "delete it. Delete it, or restore its tags."
            )
    places = {each.arn for each in made} | ({there.arn} if there is not None else set())
    _remove_ports(account, pool, {member.id}, places)
    left = [each for each in made if _remove_balancer(account, each)]
    if left:
        return MemberReport(
            external_id=left[0].arn,
            clean=draining,
            why="AWS deletes the load balancer",
            again=DELETING,
        )
    return MemberReport(is_gone=True, clean=draining)


def remove_strays(account: Account, pool: PoolSnapshot, member_ids: Collection[int]) -> None:
    """Delete the objects with the tags of these members."""
    check_place(account, pool)
    balancers = list_balancers(account)
    tags = account.read_tags(each.arn for each in balancers)
    made = [each for each in balancers if member_in(tags[each.arn], pool) in member_ids]
    # A listener whose target group is gone is found on the load balancers of the pool only.
    declared = {member.external_id for member in pool.members} & {each.arn for each in balancers}
    _remove_ports(account, pool, member_ids, declared | {each.arn for each in made})
    for each in made:
        _remove_balancer(account, each)


def _remove_ports(
    account: Account, pool: PoolSnapshot, member_ids: Collection[int], balancers: Iterable[str]
) -> None:
    """Delete the listeners and target groups of members: on these load balancers, and on those
    that their groups name. Tries all of them, then raises the first failure.
    """
    owners = [ObjectOwner(installation_of(pool), pool.name, each) for each in member_ids]
    groups = [
        each
        for each in list_groups(account)
        if any(is_named_for(each.name, owner) for owner in owners)
    ]
    tags = account.read_tags(each.arn for each in groups)
    ours = [each for each in groups if member_in(tags[each.arn], pool) in member_ids]
    failures: list[ProviderError] = []
    for place in sorted({*balancers, *(arn for each in ours for arn in each.balancers)}):
        _remove_listeners(account, pool, member_ids, place, failures)
    for group in ours:
        with set_apart(failures):
            delete_group(account, group.arn)
    if failures:
        raise failures[0]


def _remove_listeners(
    account: Account,
    pool: PoolSnapshot,
    member_ids: Collection[int],
    balancer: str,
    failures: list[ProviderError],
) -> None:
    found = list_listeners(account, balancer)
    tags = account.read_tags(each.arn for each in found)
    for listener in found:
        if member_in(tags[listener.arn], pool) in member_ids:
            with set_apart(failures):
                delete_listener(account, listener.arn)


def _remove_balancer(account: Account, balancer: NetworkBalancer) -> bool:
    """Delete a load balancer that Berth created; True: AWS still has it. Listeners that are not
    Berth's would go with it, so it stays while it has any.
    """
    if foreign := list_listeners(account, balancer.arn):
        ports = ", ".join(str(each.number) for each in foreign[:5])
        raise ConflictError(
            f"The load balancer {balancer.name} has listeners that are not Berth's, on the ports "
            f"{ports}. Berth does not delete it with them: remove these listeners."
        )
    try:
        account.call("DeleteLoadBalancer", LoadBalancerArn=balancer.arn)
        return get_balancer(account, balancer.arn) is not None
    except NotFoundOutside:
        return False
