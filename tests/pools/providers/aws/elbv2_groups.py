"""Calls of the strict ELBv2 about target groups and their targets."""

import re
from ipaddress import ip_address
from typing import Any

from tests.pools.providers.aws.elbv2_cloud import Cloud
from tests.pools.providers.aws.elbv2_listeners import check_targets, family_of
from tests.pools.providers.aws.elbv2_objects import (
    Answer,
    FakeGroup,
    FakeTarget,
    Params,
    Refusal,
    read_tags,
)

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?")
HEALTH = (
    "HealthCheckProtocol",
    "HealthCheckPort",
    "HealthCheckPath",
    "HealthCheckIntervalSeconds",
    "HealthCheckTimeoutSeconds",
    "HealthyThresholdCount",
    "UnhealthyThresholdCount",
)


def create_target_group(cloud: Cloud, params: Params) -> Answer:
    """Succeeds for equal settings, and then returns the existing group as it is."""
    name, tags = params["Name"], read_tags(params)
    if not NAME.fullmatch(name):
        raise Refusal("ValidationError", f"Target group name '{name}' is not valid")
    settings = _read_settings(params)
    there = next((each for each in cloud.groups.values() if each.name == name), None)
    if there is not None and there.settings != settings:
        why = f"A target group with the same name '{name}' exists, but with different settings"
        raise Refusal("DuplicateTargetGroupName", why)
    if there is None:
        if len(cloud.groups) >= cloud.quotas.groups:
            raise Refusal("TooManyTargetGroups", "The quota of target groups is reached")
        there = FakeGroup(cloud.make_arn("targetgroup", name), name, settings, tags)
        cloud.groups[there.arn] = there
        cloud.count_made("CreateTargetGroup")
    return {"TargetGroups": [_describe(cloud, there)]}


def _read_settings(params: Params) -> dict[str, Any]:
    if params.get("TargetType", "instance") != "ip":
        raise Refusal("ValidationError", "The strict ELBv2 knows target groups of type ip only")
    for name in ("Protocol", "Port", "VpcId"):
        if name not in params:
            raise Refusal("ValidationError", f"{name} must be specified for target type ip")
    if params["Protocol"] not in ("TCP", "UDP", "TCP_UDP", "TLS"):
        raise Refusal("UnsupportedProtocol", f"{params['Protocol']} is not supported here")
    given = {name: params[name] for name in HEALTH if name in params}
    return {
        "TargetType": "ip",
        "Protocol": params["Protocol"],
        "Port": params["Port"],
        "VpcId": params["VpcId"],
        "IpAddressType": params.get("IpAddressType", "ipv4"),
        "HealthCheckEnabled": True,
        **_read_health({"HealthCheckProtocol": "TCP", "HealthCheckPort": "traffic-port"} | given),
    }


def _read_health(given: dict[str, Any]) -> dict[str, Any]:
    is_http = given["HealthCheckProtocol"] in ("HTTP", "HTTPS")
    if given["HealthCheckProtocol"] not in ("TCP", "HTTP", "HTTPS"):
        raise Refusal("ValidationError", "Health checks use TCP, HTTP or HTTPS")
    if "HealthCheckPath" in given and not is_http:
        raise Refusal("ValidationError", "Only HTTP health checks have a path")
    found = {
        "HealthCheckIntervalSeconds": 30,
        "HealthCheckTimeoutSeconds": 6 if is_http else 10,
        "HealthyThresholdCount": 5,
        "UnhealthyThresholdCount": 2,
        **({"HealthCheckPath": "/"} if is_http else {}),
        **given,
    }
    if found["HealthCheckTimeoutSeconds"] > found["HealthCheckIntervalSeconds"]:
        raise Refusal("ValidationError", "The timeout must not exceed the interval")
    port = str(found["HealthCheckPort"])
    if port != "traffic-port" and not (port.isdigit() and 1 <= int(port) <= 65535):
        raise Refusal("ValidationError", f"Health check port '{port}' is not valid")
    return found


def _describe(cloud: Cloud, group: FakeGroup) -> Answer:
    return group.describe(cloud.balancers_of(group.arn))


def describe_target_groups(cloud: Cloud, params: Params) -> Answer:
    if arns := params.get("TargetGroupArns"):
        found = [cloud.group(arn) for arn in arns]
    elif names := params.get("Names"):
        by_name = {each.name: each for each in cloud.groups.values()}
        if missing := set(names) - set(by_name):
            raise Refusal("TargetGroupNotFound", f"Target groups '{sorted(missing)}' not found")
        found = [by_name[name] for name in names]
    elif "LoadBalancerArn" in params:
        balancer = cloud.balancer(params["LoadBalancerArn"]).arn
        used = {each.group for each in cloud.listeners_of(balancer)}
        found = [each for each in cloud.groups.values() if each.arn in used]
    else:
        found = list(cloud.groups.values())
    return cloud.page((_describe(cloud, each) for each in found), params, "TargetGroups")


def modify_target_group(cloud: Cloud, params: Params) -> Answer:
    group = cloud.group(params["TargetGroupArn"])
    given = {name: params[name] for name in HEALTH if name in params}
    before = {name: group.settings[name] for name in HEALTH if name in group.settings}
    if given.get("HealthCheckProtocol") == "TCP":
        before.pop("HealthCheckPath", None)
    group.settings |= _read_health(before | given)
    if given.get("HealthCheckProtocol") == "TCP":
        group.settings.pop("HealthCheckPath", None)
    return {"TargetGroups": [_describe(cloud, group)]}


def modify_target_group_attributes(cloud: Cloud, params: Params) -> Answer:
    group = cloud.group(params["TargetGroupArn"])
    for each in params["Attributes"]:
        if each["Key"] not in group.attributes:
            raise Refusal("InvalidConfigurationRequest", f"{each['Key']} is not recognized")
        if not (each["Value"].isdigit() and int(each["Value"]) <= 3600):
            raise Refusal("InvalidConfigurationRequest", f"{each['Value']} is out of range")
        group.attributes[each["Key"]] = each["Value"]
    return {"Attributes": [{"Key": k, "Value": v} for k, v in group.attributes.items()]}


def delete_target_group(cloud: Cloud, params: Params) -> Answer:
    """Succeeds if the group does not exist."""
    arn = params["TargetGroupArn"]
    if cloud.balancers_of(arn):
        raise Refusal("ResourceInUse", f"Target group '{arn}' is currently in use by a listener")
    cloud.groups.pop(arn, None)
    return {}


def register_targets(cloud: Cloud, params: Params) -> Answer:
    group = cloud.group(params["TargetGroupArn"])
    cloud.forget_drained(group)
    before = dict(group.targets)
    for each in params["Targets"]:
        place, zone = _read_target(cloud, group, each)
        there = group.targets.get(place)
        if there is None or there.is_draining:
            group.targets[place] = FakeTarget(cloud.now, zone=zone)
    try:
        for arn in cloud.balancers_of(group.arn):
            groups = {each.group for each in cloud.listeners_of(arn)}
            check_targets(cloud, cloud.balancers[arn], groups)
    except Refusal:
        group.targets = before
        raise
    return {}


def _read_target(
    cloud: Cloud, group: FakeGroup, target: dict[str, Any]
) -> tuple[tuple[str, int], str]:
    """The place and the zone of a target, which must be in the VPC of its group."""
    place = target["Id"], target.get("Port", group.settings["Port"])
    try:
        address = ip_address(target["Id"])
    except ValueError:
        raise Refusal("ValidationError", f"'{target['Id']}' is not an IP address") from None
    if address.version != family_of(group):
        why = f"The IP address '{target['Id']}' is not of the target group's address type"
        raise Refusal("ValidationError", why)
    if target.get("AvailabilityZone") == "all":
        return place, "all"
    subnets = [each for each in cloud.subnets.values() if each.vpc == group.settings["VpcId"]]
    zones = [each.zone for each in subnets if each.contains(address)]
    if not zones:
        why = f"The IP address '{target['Id']}' is not within the VPC of the target group"
        raise Refusal("InvalidTarget", why)
    return place, zones[0]


def deregister_targets(cloud: Cloud, params: Params) -> Answer:
    group = cloud.group(params["TargetGroupArn"])
    cloud.forget_drained(group)
    for each in params["Targets"]:
        place = each["Id"], each.get("Port", group.settings["Port"])
        if (target := group.targets.get(place)) is None:
            why = f"Target '{place}' is not registered with the target group"
            raise Refusal("InvalidTarget", why)
        if not target.is_draining:
            target.is_draining, target.since = True, cloud.now
    cloud.forget_drained(group)
    return {}


def describe_target_health(cloud: Cloud, params: Params) -> Answer:
    group = cloud.group(params["TargetGroupArn"])
    cloud.forget_drained(group)
    return {
        "TargetHealthDescriptions": [
            {
                "Target": {"Id": place[0], "Port": place[1]},
                "TargetHealth": {"State": cloud.health_of(group, place, target)},
            }
            for place, target in group.targets.items()
        ]
    }


OPERATIONS = {
    "CreateTargetGroup": create_target_group,
    "DescribeTargetGroups": describe_target_groups,
    "ModifyTargetGroup": modify_target_group,
    "ModifyTargetGroupAttributes": modify_target_group_attributes,
    "DeleteTargetGroup": delete_target_group,
    "RegisterTargets": register_targets,
    "DeregisterTargets": deregister_targets,
    "DescribeTargetHealth": describe_target_health,
}
