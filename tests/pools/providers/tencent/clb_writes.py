"""The writing actions of the fake CLB API. Each is checked at once and takes effect with a task."""

import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from tests.pools.providers.tencent.clb_reads import check_length
from tests.pools.providers.tencent.clb_world import (
    ClbWorld,
    FakeBalancer,
    FakeListener,
    Refusal,
    Target,
)

Answer = dict[str, Any]
MOST_PORTS = 50
MOST_DELETED = 20
MOST_TARGETS = 500
LONGEST_TOKEN = 64
MOST_TAGS = 20
LAST_PORT = 65535
PROTOCOLS = ("TCP", "UDP", "TCP_SSL", "QUIC", "HTTP", "HTTPS")
QUOTA_OF = {"OPEN": "TOTAL_OPEN_CLB_QUOTA", "INTERNAL": "TOTAL_INTERNAL_CLB_QUOTA"}


def create_load_balancer(world: ClbWorld, parameters: Answer, task_id: str) -> Answer:
    token = parameters.get("ClientToken", "")
    if len(token) > LONGEST_TOKEN or not token.isascii():
        raise Refusal("InvalidParameter.ClientTokenLimitExceeded", "the token is too long")
    check_length("Tags", parameters.get("Tags"), MOST_TAGS)
    if token in world.client_tokens:
        return {"LoadBalancerIds": [world.client_tokens[token]]}
    _check_creation(world, parameters)
    name = world.next_id("lb")
    version = str(parameters.get("AddressIPVersion", "IPV4"))
    world.balancers[name] = FakeBalancer(
        id=name,
        name=parameters.get("LoadBalancerName", name),
        type=parameters["LoadBalancerType"],
        ip_version="ipv4" if version.upper() == "IPV4" else "ipv6",
        created=world.now_text(),
        tags={each["TagKey"]: each["TagValue"] for each in parameters.get("Tags", [])},
        active_at=time.monotonic() + world.provision_seconds,
        parameters=parameters,
    )
    if token:
        world.client_tokens[token] = name
    world.begin(task_id, "", lambda: None).ids = [name]
    return {"LoadBalancerIds": None if world.names_late else [name]}


def _check_creation(world: ClbWorld, parameters: Answer) -> None:
    type_ = parameters["LoadBalancerType"]
    if type_ not in QUOTA_OF:
        raise Refusal("InvalidParameterValue", f"LoadBalancerType {type_}")
    if world.sold_out:
        raise Refusal("ResourcesSoldOut", "the resources are sold out")
    if world.no_balance:
        raise Refusal("FailedOperation.InsufficientBalance", "the balance is insufficient")
    there = sum(each.type == type_ for each in world.balancers.values())
    if there >= world.quotas[QUOTA_OF[type_]]:
        raise Refusal("LimitExceeded", f"{QUOTA_OF[type_]} is {there}")
    version = str(parameters.get("AddressIPVersion", "IPV4")).upper()
    if version != "IPV4" and "LoadBalancerPassToTarget" in parameters:
        raise Refusal("InvalidParameter", "IPv6 takes no LoadBalancerPassToTarget")
    internet = parameters.get("InternetAccessible") or {}
    is_package = internet.get("InternetChargeType") == "BANDWIDTH_PACKAGE"
    if parameters.get("VipIsp", "BGP") != "BGP" and not is_package:
        raise Refusal("InvalidParameter", "VipIsp needs BANDWIDTH_PACKAGE")
    if type_ == "INTERNAL" and not (parameters.get("VpcId") and parameters.get("SubnetId")):
        raise Refusal("InvalidParameter", "INTERNAL needs VpcId and SubnetId")


def delete_load_balancer(world: ClbWorld, parameters: Answer, task_id: str) -> Answer:
    check_length("LoadBalancerIds", parameters["LoadBalancerIds"], MOST_DELETED)
    found = [world.find_balancer(each) for each in parameters["LoadBalancerIds"]]
    for each in found:
        world.check_free(each)
        if sum(len(listener.targets) for listener in each.listeners.values()) >= 20:
            raise Refusal("FailedOperation.TargetNumCheckRisk", "20 targets are bound")

    def effect() -> None:
        for each in found:
            world.balancers.pop(each.id, None)

    world.begin(task_id, found[0].id, effect)
    return {}


def create_listener(world: ClbWorld, parameters: Answer, task_id: str) -> Answer:
    balancer = world.find_balancer(parameters["LoadBalancerId"])
    made = _new_listeners(world, balancer, parameters)
    world.check_free(balancer)
    quota = world.quotas["TOTAL_LISTENER_QUOTA"]
    if len(balancer.listeners) + len(made) > quota:
        raise Refusal("LimitExceeded", f"{balancer.id} may have {quota} listeners")
    world.begin(
        task_id, balancer.id, lambda: balancer.listeners.update({each.id: each for each in made})
    )
    # The API does not promise the order of the ports.
    return {"ListenerIds": [each.id for each in reversed(made)]}


def _new_listeners(
    world: ClbWorld, balancer: FakeBalancer, parameters: Answer
) -> list[FakeListener]:
    ports, protocol = parameters["Ports"], parameters["Protocol"]
    names = parameters.get("ListenerNames") or [""] * len(ports)
    check_length("Ports", ports, MOST_PORTS)
    if protocol not in PROTOCOLS:
        raise Refusal("InvalidParameter.ProtocolCheckFailed", f"no protocol {protocol}")
    if "EndPort" in parameters and len(ports) != 1:
        raise Refusal("InvalidParameter", "EndPort takes exactly one port")
    if len(names) != len(ports) or any(len(name) > 80 for name in names):
        raise Refusal("InvalidParameter", "ListenerNames do not fit Ports")
    certificate = (parameters.get("Certificate") or {}).get("CertId", "")
    if (protocol in ("TCP_SSL", "QUIC")) != bool(certificate):
        raise Refusal("InvalidParameter", f"the certificate does not fit {protocol}")
    if certificate and certificate not in world.certificates:
        raise Refusal("InvalidParameterValue", f"the certificate {certificate} is not found")
    switch = (parameters.get("HealthCheck") or {}).get("HealthSwitch", 1)
    made: list[FakeListener] = []
    for port, name in zip(ports, names, strict=True):
        end = parameters.get("EndPort", port)
        if not 0 < port <= end <= LAST_PORT:
            raise Refusal("InvalidParameter.PortCheckFailed", f"{port}-{end} are no ports")
        each = FakeListener(
            world.next_id("lbl"), protocol, port, end, name, certificate, switch == 1
        )
        _check_ports(each, [*balancer.listeners.values(), *made])
        made.append(each)
    return made


def _check_ports(listener: FakeListener, there: list[FakeListener]) -> None:
    """TCP_SSL, HTTP and HTTPS block TCP, and QUIC blocks UDP, on one number."""
    for each in there:
        is_apart = each.end < listener.port or listener.end < each.port
        if each.lane == listener.lane and not is_apart:
            raise Refusal(
                "InvalidParameter.PortCheckFailed",
                f"{listener.port} {listener.protocol} is used by {each.id} {each.protocol}",
            )


def delete_listeners(world: ClbWorld, parameters: Answer, task_id: str) -> Answer:
    balancer = world.find_balancer(parameters["LoadBalancerId"])
    ids = parameters.get("ListenerIds") or list(balancer.listeners)  # without ids: all
    check_length("ListenerIds", ids, MOST_DELETED)
    if missing := [each for each in ids if each not in balancer.listeners]:
        raise Refusal("InvalidParameter.ListenerIdNotFound", f"{missing[0]} is not found")
    world.check_free(balancer)

    def effect() -> None:
        for each in ids:
            balancer.listeners.pop(each, None)

    world.begin(task_id, balancer.id, effect)
    return {}


def register_targets(world: ClbWorld, parameters: Answer, task_id: str) -> Answer:
    quota = world.quotas["TOTAL_TARGET_BIND_QUOTA"]

    def bind(listener: FakeListener, target: Target) -> Callable[[], None] | None:
        if target[0] in world.unreachable or len(listener.targets) >= quota:
            return None
        health = "Unknown" if listener.is_checked else "Close"
        return lambda: listener.targets.update({target: listener.targets.get(target, health)})

    return _change_targets(world, parameters, task_id, bind)


def deregister_targets(world: ClbWorld, parameters: Answer, task_id: str) -> Answer:
    def unbind(listener: FakeListener, target: Target) -> Callable[[], None] | None:
        if target[0] in world.unreachable or target not in listener.targets:
            return None
        return lambda: listener.targets.pop(target, None) and None

    return _change_targets(world, parameters, task_id, unbind)


def _change_targets(
    world: ClbWorld,
    parameters: Answer,
    task_id: str,
    change: Callable[[FakeListener, Target], Callable[[], None] | None],
) -> Answer:
    """A target that is refused is reported beside those that are changed."""
    balancer = world.find_balancer(parameters["LoadBalancerId"])
    check_length("Targets", parameters["Targets"], MOST_TARGETS)
    world.check_free(balancer)
    failed: list[str] = []
    effects: list[Callable[[], None]] = []
    for each in parameters["Targets"]:
        if ("EniIp" in each) == ("InstanceId" in each) or not 0 < each.get("Port", 0) <= LAST_PORT:
            raise Refusal("InvalidParameter", "a target needs an IP or an instance, and a port")
        target = (ip_address(each["EniIp"]).compressed, each["Port"])
        listener = balancer.listeners.get(each["ListenerId"])
        effect = None if listener is None else change(listener, target)
        if effect is None:
            failed.append(each["ListenerId"])
        else:
            effects.append(effect)

    def apply() -> None:
        for effect in effects:
            effect()

    world.begin(task_id, balancer.id, apply)
    return {"FailListenerIdSet": failed, "Message": "cannot change the target" if failed else ""}
