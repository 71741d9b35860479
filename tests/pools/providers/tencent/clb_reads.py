"""The reading actions of the fake CLB API."""

import time
from typing import Any

from tests.pools.providers.tencent.clb_world import (
    ClbWorld,
    FakeBalancer,
    FakeListener,
    Refusal,
)

Answer = dict[str, Any]
MOST_BALANCER_IDS = 20
MOST_BALANCERS = 100
MOST_LISTENER_IDS = 100
MOST_LISTENERS_OF_TARGETS = 20
MOST_BALANCERS_OF_HEALTH = 30


def check_length(name: str, items: object, most: int) -> None:
    if isinstance(items, list) and len(items) > most:
        raise Refusal("InvalidParameterValue.Length", f"{name} has more than {most} entries")


def describe_load_balancers(world: ClbWorld, parameters: Answer) -> Answer:
    ids = parameters.get("LoadBalancerIds")
    check_length("LoadBalancerIds", ids, MOST_BALANCER_IDS)
    limit = parameters.get("Limit", 20)
    if not 0 < limit <= MOST_BALANCERS:
        raise Refusal("InvalidParameterValue.Range", f"Limit is {limit}")
    found = [
        each
        for each in world.balancers.values()
        if (ids is None or each.id in ids) and _passes(world, each, parameters.get("Filters") or [])
    ]
    is_descending = parameters.get("OrderType", 1) == 1
    found.sort(key=lambda each: (each.created, each.id), reverse=is_descending)
    offset = parameters.get("Offset", 0)
    page = [_show_balancer(each) for each in found[offset : offset + limit]]
    return {"TotalCount": len(found), "LoadBalancerSet": page}


def _passes(world: ClbWorld, balancer: FakeBalancer, filters: list[Answer]) -> bool:
    for each in filters:
        name = str(each["Name"])
        if not name.startswith("tag:"):
            raise Refusal("InvalidParameterValue.InvalidFilter", f"no filter {name}")
        if world.tags_late or balancer.tags.get(name.removeprefix("tag:")) not in each["Values"]:
            return False
    return True


def _show_balancer(balancer: FakeBalancer) -> Answer:
    is_v6 = balancer.ip_version != "ipv4"
    number = int(balancer.id.rpartition("-")[2])
    return {
        "LoadBalancerId": balancer.id,
        "LoadBalancerName": balancer.name,
        "LoadBalancerType": balancer.type,
        "Forward": balancer.forward,
        "Status": int(balancer.active_at <= time.monotonic()),
        "CreateTime": balancer.created,
        "Isolation": balancer.isolation,
        "IsBlock": balancer.is_blocked,
        "AddressIPVersion": balancer.ip_version,
        "LoadBalancerVips": [] if is_v6 else [f"203.0.113.{number}"],
        "AddressIPv6": f"2001:db8::{number}" if is_v6 else None,
        "LoadBalancerDomain": None,
        "Domain": "",
        "Tags": [{"TagKey": key, "TagValue": value} for key, value in balancer.tags.items()],
    }


def describe_listeners(world: ClbWorld, parameters: Answer) -> Answer:
    balancer = world.find_balancer(parameters["LoadBalancerId"])
    ids = parameters.get("ListenerIds")
    check_length("ListenerIds", ids, MOST_LISTENER_IDS)
    if ids and (missing := [each for each in ids if each not in balancer.listeners]):
        raise Refusal("InvalidParameter.ListenerIdNotFound", f"{missing[0]} is not found")
    shown = [
        _show_listener(each)
        for each in balancer.listeners.values()
        if ids is None or each.id in ids
    ]
    return {"TotalCount": len(shown), "Listeners": shown}


def _show_listener(listener: FakeListener) -> Answer:
    certificate = {"SSLMode": "UNIDIRECTIONAL", "CertId": listener.certificate}
    return {
        "ListenerId": listener.id,
        "ListenerName": listener.name,
        "Protocol": listener.protocol,
        "Port": listener.port,
        "EndPort": listener.end if listener.end > listener.port else 0,
        "Certificate": certificate if listener.certificate else None,
        "HealthCheck": {"HealthSwitch": int(listener.is_checked)},
    }


def describe_targets(world: ClbWorld, parameters: Answer) -> Answer:
    balancer = world.find_balancer(parameters["LoadBalancerId"])
    ids = parameters["ListenerIds"]
    check_length("ListenerIds", ids, MOST_LISTENERS_OF_TARGETS)
    if missing := [each for each in ids if each not in balancer.listeners]:
        raise Refusal("InvalidParameter.ListenerIdNotFound", f"{missing[0]} is not found")
    shown = [
        {
            "ListenerId": each.id,
            "Protocol": each.protocol,
            "Port": each.port,
            "Targets": [
                {"Type": "ENI", "PrivateIpAddresses": [ip], "Port": port, "Weight": 10}
                for ip, port in each.targets
            ],
        }
        for each in balancer.listeners.values()
        if each.id in ids
    ]
    return {"Listeners": shown}


def describe_target_health(world: ClbWorld, parameters: Answer) -> Answer:
    ids = parameters["LoadBalancerIds"]
    check_length("LoadBalancerIds", ids, MOST_BALANCERS_OF_HEALTH)
    return {"LoadBalancers": [_show_health(world.find_balancer(each)) for each in ids]}


def _show_health(balancer: FakeBalancer) -> Answer:
    """Listeners without targets are left out."""
    shown = [
        {
            "ListenerId": each.id,
            "ListenerName": each.name,
            "Protocol": each.protocol,
            "Port": each.port,
            "Rules": [
                {
                    "LocationId": "",
                    "Targets": [
                        {
                            "IP": ip,
                            "Port": port,
                            "HealthStatus": health in ("Alive", "Close"),
                            "HealthStatusDetail": health,
                        }
                        for (ip, port), health in each.targets.items()
                    ],
                }
            ],
        }
        for each in balancer.listeners.values()
        if each.targets
    ]
    return {"LoadBalancerId": balancer.id, "LoadBalancerName": balancer.name, "Listeners": shown}


def describe_task_status(world: ClbWorld, parameters: Answer) -> Answer:
    task = world.tasks.get(parameters.get("TaskId", ""))
    if task is None:
        raise Refusal("InvalidParameter", "the task is not found")
    return {"Status": task.status, "LoadBalancerIds": task.ids or None, "Message": task.message}


def describe_quota(world: ClbWorld, parameters: Answer) -> Answer:
    return {
        "QuotaSet": [
            {"QuotaId": name, "QuotaCurrent": None, "QuotaLimit": limit}
            for name, limit in world.quotas.items()
        ]
    }
