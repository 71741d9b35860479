"""Calls of the strict ELBv2 about load balancers, subnets, tags and quotas."""

from tests.pools.providers.aws.elbv2_cloud import Cloud
from tests.pools.providers.aws.elbv2_objects import (
    NEEDED_ADDRESSES,
    Answer,
    FakeBalancer,
    Params,
    Refusal,
    read_tags,
)


def create_load_balancer(cloud: Cloud, params: Params) -> Answer:
    """Succeeds for equal settings, and then returns the existing load balancer as it is."""
    name, tags = params["Name"], read_tags(params)
    if len(name) > 32 or name.startswith(("internal-", "-")) or name.endswith("-"):
        raise Refusal("ValidationError", f"The load balancer name '{name}' is not valid")
    subnets = _read_subnets(cloud, params)
    groups = tuple(params.get("SecurityGroups", ()))
    if unknown := set(groups) - cloud.security_groups:
        raise Refusal("InvalidSecurityGroup", f"Security groups {sorted(unknown)} do not exist")
    settings = (
        params.get("Type", "application"),
        params.get("Scheme", "internet-facing"),
        subnets,
        params.get("IpAddressType", "ipv4"),
        groups,
    )
    there = next((each for each in cloud.balancers.values() if each.name == name), None)
    if there is not None and there.settings != settings:
        why = f"A load balancer with the same name '{name}' exists, but with different settings"
        raise Refusal("DuplicateLoadBalancerName", why)
    if there is None:
        there = _add_balancer(cloud, name, settings, tags)
    return {"LoadBalancers": [_describe(cloud, there)]}


def _add_balancer(
    cloud: Cloud,
    name: str,
    settings: tuple[str, str, tuple[str, ...], str, tuple[str, ...]],
    tags: dict[str, str],
) -> FakeBalancer:
    kind, scheme, subnets, ip_type, groups = settings
    same = [each for each in cloud.balancers.values() if each.type == kind]
    if kind == "network" and len(same) >= cloud.quotas.balancers:
        raise Refusal("TooManyLoadBalancers", "The quota of network load balancers is reached")
    for each in subnets:
        if cloud.subnets[each].free < NEEDED_ADDRESSES:
            raise Refusal("InvalidSubnet", f"Not enough IP space available in {each}")
    arn = cloud.make_arn("loadbalancer", "net" if kind == "network" else "app", name)
    vpc = cloud.subnets[subnets[0]].vpc
    made = FakeBalancer(
        arn, name, kind, scheme, subnets, vpc, ip_type, groups, tags, created=cloud.now
    )
    for each in subnets:
        cloud.subnets[each].free -= 1
    cloud.balancers[arn] = made
    cloud.count_made("CreateLoadBalancer")
    return made


def _read_subnets(cloud: Cloud, params: Params) -> tuple[str, ...]:
    subnets = tuple(params.get("Subnets", ()))
    if not subnets:
        raise Refusal("ValidationError", "At least one subnet must be specified")
    for each in subnets:
        if each not in cloud.subnets:
            raise Refusal("SubnetNotFound", f"The subnet ID '{each}' does not exist")
    found = [cloud.subnets[each] for each in subnets]
    if len({each.zone for each in found}) < len(found):
        why = "A load balancer cannot be attached to multiple subnets in the same zone"
        raise Refusal("InvalidConfigurationRequest", why)
    if len({each.vpc for each in found}) > 1:
        raise Refusal("InvalidConfigurationRequest", "All subnets must belong to the same VPC")
    return subnets


def _describe(cloud: Cloud, balancer: FakeBalancer) -> Answer:
    zones = {each.id: each.zone for each in cloud.subnets.values()}
    return balancer.describe(cloud.state_of(balancer), zones)


def describe_load_balancers(cloud: Cloud, params: Params) -> Answer:
    arns, names = params.get("LoadBalancerArns"), params.get("Names")
    if arns and names:
        raise Refusal("ValidationError", "Names and ARNs cannot be specified together")
    if len(arns or names or ()) > 20:
        raise Refusal("ValidationError", "At most 20 load balancers can be named")
    if arns:
        found = [cloud.balancer(arn) for arn in arns]
    elif names:
        by_name = {each.name: each for each in cloud.balancers.values()}
        if missing := set(names) - set(by_name):
            raise Refusal("LoadBalancerNotFound", f"Load balancers '{sorted(missing)}' not found")
        found = [by_name[name] for name in names]
    else:
        found = list(cloud.balancers.values())
    return cloud.page((_describe(cloud, each) for each in found), params, "LoadBalancers")


def delete_load_balancer(cloud: Cloud, params: Params) -> Answer:
    """Deletes the listeners, too, but not the target groups. Succeeds if it does not exist."""
    balancer = cloud.balancers.get(params["LoadBalancerArn"])
    if balancer is None:
        return {}
    if balancer.attributes["deletion_protection.enabled"] == "true":
        why = "The load balancer cannot be deleted because deletion protection is enabled"
        raise Refusal("OperationNotPermitted", why)
    for listener in cloud.listeners_of(balancer.arn):
        del cloud.listeners[listener.arn]
    for each in balancer.subnets:
        cloud.subnets[each].free += 1
    del cloud.balancers[balancer.arn]
    return {}


def modify_load_balancer_attributes(cloud: Cloud, params: Params) -> Answer:
    balancer = cloud.balancer(params["LoadBalancerArn"])
    for each in params["Attributes"]:
        if each["Key"] not in balancer.attributes:
            raise Refusal("InvalidConfigurationRequest", f"{each['Key']} is not recognized")
        balancer.attributes[each["Key"]] = each["Value"]
    return {"Attributes": [{"Key": k, "Value": v} for k, v in balancer.attributes.items()]}


def describe_tags(cloud: Cloud, params: Params) -> Answer:
    arns = params["ResourceArns"]
    if not 1 <= len(arns) <= 20:
        raise Refusal("ValidationError", "DescribeTags takes 1 to 20 resources")
    return {
        "TagDescriptions": [
            {
                "ResourceArn": arn,
                "Tags": [{"Key": k, "Value": v} for k, v in cloud.tags_of(arn).items()],
            }
            for arn in arns
        ]
    }


def describe_account_limits(cloud: Cloud, params: Params) -> Answer:
    return cloud.page(cloud.quotas.describe(), params, "Limits")


def describe_subnets(cloud: Cloud, params: Params) -> Answer:
    wanted = params.get("SubnetIds") or list(cloud.subnets)
    for each in wanted:
        if each not in cloud.subnets:
            raise Refusal("InvalidSubnetID.NotFound", f"The subnet ID '{each}' does not exist")
    return {"Subnets": [cloud.subnets[each].describe() for each in wanted]}


OPERATIONS = {
    "CreateLoadBalancer": create_load_balancer,
    "DescribeLoadBalancers": describe_load_balancers,
    "DeleteLoadBalancer": delete_load_balancer,
    "ModifyLoadBalancerAttributes": modify_load_balancer_attributes,
    "DescribeTags": describe_tags,
    "DescribeAccountLimits": describe_account_limits,
    "DescribeSubnets": describe_subnets,
}
