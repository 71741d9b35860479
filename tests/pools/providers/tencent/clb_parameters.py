"""Checks the parameters of a call by the classes of the SDK, which declare names and types."""

import re
from typing import Any

from tencentcloud.clb.v20180317 import models

from tests.pools.providers.tencent.clb_world import Refusal

RETURN_TYPE = re.compile(r":rtype: (?::class:`[\w.]*?(\w+)`|(list of )?(\w+))")
PLAIN: dict[str, type] = {"str": str, "int": int, "bool": bool, "float": float}
REQUIRED = {
    "CreateLoadBalancer": ("LoadBalancerType",),
    "DeleteLoadBalancer": ("LoadBalancerIds",),
    "DescribeLoadBalancers": (),
    "CreateListener": ("LoadBalancerId", "Ports", "Protocol"),
    "DeleteLoadBalancerListeners": ("LoadBalancerId",),
    "DescribeListeners": ("LoadBalancerId",),
    "BatchRegisterTargets": ("LoadBalancerId", "Targets"),
    "BatchDeregisterTargets": ("LoadBalancerId", "Targets"),
    "DescribeTargets": ("LoadBalancerId", "ListenerIds"),
    "DescribeTargetHealth": ("LoadBalancerIds",),
    "DescribeTaskStatus": (),
    "DescribeQuota": (),
}


def check_parameters(action: str, parameters: Any) -> None:
    """Raises Refusal for an unknown or missing name and for a value of another type."""
    if action not in REQUIRED:
        raise Refusal("InvalidAction", f"there is no action {action}")
    if not isinstance(parameters, dict):
        raise Refusal("InvalidParameter.FormatError", "the body is no object")
    for name in REQUIRED[action]:
        if parameters.get(name) in (None, [], ""):
            raise Refusal("MissingParameter", f"{name} is missing")
    _check_object(getattr(models, f"{action}Request"), parameters, action)


def _check_object(kind: type, value: dict[str, Any], where: str) -> None:
    for name, inner in value.items():
        declared = getattr(kind, name, None)
        if not isinstance(declared, property):
            raise Refusal("UnknownParameter", f"{where} has no parameter {name}")
        match = RETURN_TYPE.search(declared.__doc__ or "")
        assert match is not None, f"{kind.__name__}.{name} declares no type"
        is_list = bool(match[2])
        type_name = match[1] or match[3]
        if is_list and not isinstance(inner, list):
            raise Refusal("InvalidParameter", f"{where}.{name} is no list")
        for each in inner if is_list else [inner]:
            _check_value(type_name, each, f"{where}.{name}")


def _check_value(type_name: str, value: object, where: str) -> None:
    if (plain := PLAIN.get(type_name)) is None:
        if not isinstance(value, dict):
            raise Refusal("InvalidParameter", f"{where} is no object")
        _check_object(getattr(models, type_name), value, where)
    elif type(value) is not plain:
        raise Refusal("InvalidParameter", f"{where} is no {type_name}: {value!r}")
