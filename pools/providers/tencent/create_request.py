"""The parameters of CreateLoadBalancer, from the options of a pool. Pure."""

from collections.abc import Mapping

from pools.providers.base import MemberSnapshot, PoolSnapshot
from pools.providers.tencent.names import client_token, load_balancer_name, member_tags
from pools.providers.tencent.options import IPV4, OPEN, PACKAGE

Parameters = dict[str, object]
# Options that the API knows by another name and takes as they are.
PLAIN = {
    "vpc_id": "VpcId",
    "subnet_id": "SubnetId",
    "zone_id": "ZoneId",
    "master_zone_id": "MasterZoneId",
    "bandwidth_package_id": "BandwidthPackageId",
    "vip": "Vip",
    "project_id": "ProjectId",
    "sla_type": "SlaType",
    "charge_type": "LBChargeType",
}
INTERNET = {
    "charge_type": "InternetChargeType",
    "max_bandwidth_out": "InternetMaxBandwidthOut",
    "package_sub_type": "BandwidthpkgSubType",
}
BGP = "BGP"  # the default line, which takes every way of payment


def create_request(pool: PoolSnapshot, member: MemberSnapshot) -> Parameters:
    options: Mapping[str, object] = pool.options.get("load_balancer") or {}
    network = options.get("type", OPEN)
    tags = {**_mapping(options.get("tags")), **member_tags(pool, member)}
    request: Parameters = {
        "LoadBalancerType": network,
        "Forward": 1,
        "Number": 1,
        "LoadBalancerName": load_balancer_name(pool, member, str(options.get("name") or "")),
        "ClientToken": client_token(pool, member),
        "Tags": [{"TagKey": name, "TagValue": tags[name]} for name in sorted(tags)],
    }
    request |= {key: options[name] for name, key in PLAIN.items() if name in options}
    version = options.get("address_ip_version", IPV4)
    if version == IPV4:
        request["LoadBalancerPassToTarget"] = options.get("pass_to_target", True)
    if network == OPEN:
        request["AddressIPVersion"] = version
        request["DynamicVip"] = options.get("dynamic_vip", False)
    if line := options.get("vip_isp"):
        request["VipIsp"] = line
    if internet := _internet(options):
        request["InternetAccessible"] = internet
    return request


def _internet(options: Mapping[str, object]) -> Parameters:
    given = _mapping(options.get("internet"))
    found: Parameters = {key: given[name] for name, key in INTERNET.items() if name in given}
    is_forced = options.get("vip_isp", BGP) != BGP or options.get("bandwidth_package_id")
    if is_forced:
        found["InternetChargeType"] = PACKAGE
    return found


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
