"""The REST API of backends."""

from django.http import HttpResponse

from claims.allocation.api import schemas
from claims.lifecycle.api.actions import Body, ClaimAction, describe_action
from claims.ports.backends import BackendRequest, set_backend
from claims.ports.port_list import MOST_PORTS
from pools.config.layout import LAST_PORT
from pools.config.parsing import Integer, ListOf, kind_of
from pools.http.fast_view import FastRequest

PORT = Integer(1, LAST_PORT)
PORTS = ListOf(PORT, "ports", MOST_PORTS * 5, "[8080, 9999]", least=1)
BACKEND_BODY: schemas.Json = schemas.body(
    ("generation", "ip"),
    generation=schemas.GENERATION,
    ip={
        "type": "string",
        "maxLength": 45,
        "nullable": True,
        "description": "Address of the backend; null: none. Listeners and ports stay.",
        "example": "10.0.3.7",
    },
    port=PORT.schema() | {"description": "Port of the backend for every number of the claim."},
    ports=PORTS.schema()
    | {"description": "A port for each part or number. Default: the ports that the claim names."},
    reason=schemas.REASON,
)


class ClaimBackend(ClaimAction):
    @describe_action("Set the backend", BACKEND_BODY, "set_claim_backend", 422)
    def put(self, call: FastRequest, claim_id: int) -> HttpResponse:
        """Routes the ports of a bound claim to a backend, in the networks that the pool allows. A
        changed backend replaces the former one, and the ports stay. A target of another live claim
        of the pool is registered once that claim has ended or has another backend; until then the
        claim is not ready.
        """
        body = Body(call, "generation", "ip", "port", "ports", "reason", required=("generation",))
        generation, reason = body.number("generation", 0), body.text("reason")
        request = read_backend(body)
        body.check()
        return self.act(
            call, claim_id, set_backend, generation=generation, backend=request, reason=reason
        )


def read_backend(body: Body) -> BackendRequest | None:
    given, faults = body.given, body.faults
    ip, port, ports = given.get("ip"), given.get("port"), given.get("ports")
    if "ip" not in given:
        faults.add("ip", "This field is missing.", "Add it; null: no backend.")
    elif ip is not None and not isinstance(ip, str):
        faults.add("ip", f"This is {kind_of(ip)}, not an address.", "Write it like 10.0.3.7.")
    if port is not None and ports is not None:
        faults.add("ports", "The fields port and ports exclude each other.", "Give one of them.")
    if ip is None and (port is not None or ports is not None):
        name = "port" if port is not None else "ports"
        faults.add(name, "Without ip there is no backend.", "Leave it out, or give ip.")
    read = None if port is None else PORT.read(port, "port", faults)
    several = None if ports is None else PORTS.read(ports, "ports", faults)
    return BackendRequest(ip, read, several) if isinstance(ip, str) else None
