"""The pools of the model-based test, and what its callers ask for."""

from typing import Any

from tests.claims.ports.model.oracle import Part, Wanted
from tests.claims.ports.model.outside import Outside

# Two pools share the load balancer of the user, where other programs have listeners.
SHARED = ("west", "east")
SPANS = {
    "games": (30000, 30009),
    "west": (31000, 31004),
    "east": (32000, 32004),
    "fixed": (33000, 33009),
}
QUOTA = {"games": 5, "west": 30, "east": 30, "fixed": 10}
MOST_MEMBERS = {"games": 3, "west": 1, "east": 1, "fixed": 2}
BACKENDS = ("10.0.1.1", "10.0.1.2", "10.0.1.3", "10.0.1.4", "")


def ports(*parts: tuple[str, int, str]) -> Wanted:
    return Wanted(tuple(Part(kind, tuple(pools.split(",")), port) for kind, port, pools in parts))


def numbers(kind: str, pool: str, size: int, *, is_contiguous: bool = False) -> Wanted:
    parts = (Part(kind, (pool,), 4000),) * size
    return Wanted(parts, is_contiguous=is_contiguous, is_plain=True)


WISHES = (
    ports(("tcp", 80, "games")),
    ports(("tcp", 80, "games"), ("udp", 53, "games")),
    ports(("tcp", 80, "games"), ("udp", 53, "games"), ("tcp_udp", 77, "games")),
    ports(("tcp_udp", 77, "games"), ("tcp_udp", 78, "games")),
    ports(("tcp_ssl", 443, "games"), ("udp", 53, "west")),
    ports(("tcp", 80, "games,west")),
    ports(("tcp", 80, "west"), ("tcp", 81, "west"), ("udp", 53, "east")),
    ports(("tcp_udp", 77, "east")),
    ports(("tcp", 80, "fixed")),
    ports(("tcp", 80, "fixed"), ("udp", 53, "fixed")),
    ports(("udp", 53, "fixed"), ("tcp", 90, "games")),
    numbers("tcp", "west", 1),
    numbers("udp", "games", 2),
    numbers("tcp", "games", 2, is_contiguous=True),
    numbers("tcp", "east", 3, is_contiguous=True),
)
AT_ONCE = numbers("tcp", "west", 1)  # on the load balancer of the user, which is there at once


def write_pool(name: str, cloud: Outside) -> dict[str, Any]:
    """The configuration of the pool."""
    first, last = SPANS[name]
    form = cloud.precreated if name == "fixed" else cloud.layout
    members: dict[str, Any] = {"max": MOST_MEMBERS[name], "list": [f"{name}-0"]}
    more: dict[str, Any] = {}
    if name in SHARED:
        members["list"] = [{"name": f"{name}-0", "external_id": cloud.users_id}]
    if name == "games":
        members = {"min": 0, "max": MOST_MEMBERS[name]}
        cooldown = {"up": "0s", "down": "1h"}
        more["scaling"] = {"policy": "on_demand", "cooldown": cooldown}
    return {
        "name": name,
        "provider": cloud.provider(),
        "slots": {"ports": f"{first}-{last}", "quota": QUOTA[name], **form},
        "members": members,
        "certificates": [cloud.certificate],
        "backends": {"networks": ["10.0.0.0/16"], "ports": "1-65535"},
        **more,
    }


def write_claim(wanted: Wanted, certificate: str) -> dict[str, Any]:
    """The body of the claim."""
    if wanted.is_plain:
        part = wanted.parts[0]
        found: dict[str, Any] = {"pool": part.pools[0], "kind": part.kind}
        if len(wanted.parts) > 1:
            found["size"] = len(wanted.parts)
        return found | ({"contiguous": True} if wanted.is_contiguous else {})
    given = []
    for part in wanted.parts:
        protocol = part.kind.upper().replace("TCP_UDP", "TCPUDP")
        port = {"port": part.port, "protocol": protocol, "pools": list(part.pools)}
        if part.kind == "tcp_ssl":
            port["certificate"] = certificate
        given.append(port)
    return {"ports": given}
