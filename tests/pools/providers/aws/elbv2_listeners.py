"""Calls of the strict ELBv2 about listeners."""

from collections.abc import Mapping
from typing import Any

from tests.pools.providers.aws.elbv2_cloud import Cloud
from tests.pools.providers.aws.elbv2_objects import (
    FORWARDS,
    Answer,
    FakeBalancer,
    FakeGroup,
    FakeListener,
    Params,
    Refusal,
    read_tags,
)

DEFAULT_POLICY = "ELBSecurityPolicy-2016-08"
POLICIES = (DEFAULT_POLICY, "ELBSecurityPolicy-TLS13-1-2-2021-06")


def create_listener(cloud: Cloud, params: Params) -> Answer:
    """Succeeds for equal settings, and then returns the existing listener as it is."""
    balancer = cloud.balancer(params["LoadBalancerArn"])
    if "Port" not in params or "Protocol" not in params:
        raise Refusal("ValidationError", "A port and a protocol must be specified")
    made = FakeListener(
        arn="",
        balancer=balancer.arn,
        port=params["Port"],
        protocol=params["Protocol"],
        group=_read_group(cloud, params),
        certificates=_read_certificates(params),
        policy=_read_policy(params, params["Protocol"]),
        tags=read_tags(params),
    )
    _check(cloud, balancer, made)
    there = cloud.listeners_of(balancer.arn)
    same = next((each for each in there if each.port == made.port), None)
    if same is not None and same.settings != made.settings:
        raise Refusal("DuplicateListener", "A listener already exists on this port")
    if same is None:
        if len(there) >= cloud.quotas.listeners:
            raise Refusal("TooManyListeners", "The quota of listeners is reached")
        _check_quotas(cloud, balancer, made, there)
        parts = balancer.arn.partition("loadbalancer/")[2].split("/")
        made.arn = cloud.make_arn("listener", *parts)
        cloud.listeners[made.arn] = same = made
        cloud.count_made("CreateListener")
    return {"Listeners": [same.describe()]}


def _read_group(cloud: Cloud, params: Mapping[str, Any]) -> str:
    actions = params["DefaultActions"]
    if len(actions) != 1 or actions[0]["Type"] != "forward":
        raise Refusal("InvalidLoadBalancerAction", "A network listener forwards to one group")
    return cloud.group(actions[0].get("TargetGroupArn", "")).arn


def _read_certificates(params: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(each["CertificateArn"] for each in params.get("Certificates", ()))


def _read_policy(params: Mapping[str, Any], protocol: str) -> str:
    return params.get("SslPolicy", DEFAULT_POLICY) if protocol == "TLS" else ""


def _check(cloud: Cloud, balancer: FakeBalancer, made: FakeListener) -> None:
    group = cloud.groups[made.group]
    if balancer.type != "network" or made.protocol not in FORWARDS:
        why = f"{made.protocol} listeners are not supported on {balancer.type} load balancers"
        raise Refusal("UnsupportedProtocol", why)
    if group.settings["Protocol"] not in FORWARDS[made.protocol]:
        why = f"A {made.protocol} listener cannot use a {group.settings['Protocol']} target group"
        raise Refusal("IncompatibleProtocols", why)
    if group.settings["VpcId"] != balancer.vpc:
        why = "The target group and the load balancer are in different VPCs"
        raise Refusal("InvalidConfigurationRequest", why)
    if group.settings["IpAddressType"] == "ipv6" and balancer.ip_type == "ipv4":
        why = "An IPv6 target group needs a dualstack load balancer"
        raise Refusal("InvalidConfigurationRequest", why)
    if any(other != balancer.arn for other in cloud.balancers_of(group.arn)):
        why = "The target group is associated with another load balancer"
        raise Refusal("TargetGroupAssociationLimit", why)
    if made.protocol != "TLS" and (made.certificates or made.policy):
        raise Refusal("InvalidConfigurationRequest", "Only TLS listeners have certificates")
    if made.protocol == "TLS":
        if len(made.certificates) != 1:
            raise Refusal("ValidationError", "A certificate must be specified for TLS listeners")
        if made.certificates[0] not in cloud.certificates:
            raise Refusal("CertificateNotFound", f"Certificate '{made.certificates[0]}' not found")
        if made.certificates[0] in cloud.unsupported:
            why = "The certificate must be issued, and have a supported signature and key size"
            raise Refusal("UnsupportedCertificate", why)
        if made.policy not in POLICIES:
            raise Refusal("SSLPolicyNotFound", f"SSL policy '{made.policy}' not found")


def _check_quotas(
    cloud: Cloud, balancer: FakeBalancer, made: FakeListener, there: list[FakeListener]
) -> None:
    certificates = {arn for each in (*there, made) for arn in each.certificates}
    if len(certificates) > cloud.quotas.certificates:
        raise Refusal("TooManyCertificates", "The quota of certificates is reached")
    check_targets(cloud, balancer, {each.group for each in (*there, made)})


def check_targets(cloud: Cloud, balancer: FakeBalancer, groups: set[str]) -> None:
    """Raises Refusal if these groups have more targets than the load balancer may serve."""
    targets = [target for arn in groups for target in cloud.groups[arn].targets.values()]
    zones = [target.zone for target in targets]
    in_zone = max(map(zones.count, set(zones)), default=0)
    if balancer.is_crossing_zones:
        in_zone = len(targets)
    if len(targets) > cloud.quotas.targets or in_zone > cloud.quotas.zone_targets:
        raise Refusal("TooManyTargets", "The quota of targets is reached")


def modify_listener(cloud: Cloud, params: Params) -> Answer:
    listener = cloud.listener(params["ListenerArn"])
    protocol = params.get("Protocol", listener.protocol)
    given = "Certificates" in params
    changed = FakeListener(
        arn=listener.arn,
        balancer=listener.balancer,
        port=params.get("Port", listener.port),
        protocol=protocol,
        group=_read_group(cloud, params) if "DefaultActions" in params else listener.group,
        certificates=_read_certificates(params) if given else listener.certificates,
        policy=params.get("SslPolicy", listener.policy or _read_policy({}, protocol)),
        tags=listener.tags,
    )
    if protocol != "TLS":
        changed.certificates, changed.policy = (), ""
    balancer = cloud.balancers[listener.balancer]
    _check(cloud, balancer, changed)
    others = [each for each in cloud.listeners_of(balancer.arn) if each.arn != listener.arn]
    if any(each.port == changed.port for each in others):
        raise Refusal("DuplicateListener", "A listener already exists on this port")
    _check_quotas(cloud, balancer, changed, others)
    cloud.listeners[listener.arn] = changed
    return {"Listeners": [changed.describe()]}


def delete_listener(cloud: Cloud, params: Params) -> Answer:
    del cloud.listeners[cloud.listener(params["ListenerArn"]).arn]
    return {}


def describe_listeners(cloud: Cloud, params: Params) -> Answer:
    if arns := params.get("ListenerArns"):
        found = [cloud.listener(arn) for arn in arns]
    elif "LoadBalancerArn" in params:
        found = cloud.listeners_of(cloud.balancer(params["LoadBalancerArn"]).arn)
    else:
        raise Refusal("ValidationError", "A load balancer or listeners must be specified")
    return cloud.page((each.describe() for each in found), params, "Listeners")


def family_of(group: FakeGroup) -> int:
    return 6 if group.settings["IpAddressType"] == "ipv6" else 4


OPERATIONS = {
    "CreateListener": create_listener,
    "ModifyListener": modify_listener,
    "DeleteListener": delete_listener,
    "DescribeListeners": describe_listeners,
}
