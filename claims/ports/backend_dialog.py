"""The dialog that sets the backend of a claim."""

from django.http import HttpResponse

from claims.allocation.claim_view import ClaimView
from claims.lifecycle.pages.claim_dialogs import claim_for
from claims.ports.backends import BackendRequest, set_backend
from pools.config.layout import LAST_PORT
from pools.pages.base import PageRequest, confirm, signed_in
from project.kernel.errors import FieldError, Invalid
from project.kernel.ui.confirm import ConfirmInput, Done, Field, Question


@signed_in
def set_claim_backend(request: PageRequest, claim_id: int) -> HttpResponse:
    claim = claim_for(request, claim_id)
    backend = claim.backend
    question = Question(
        title=f"Backend of claim {claim.id}",
        verb="Set the backend",
        intro="The ports of the claim send their traffic to this address. The ports stay when the "
        "backend changes.",
        fields=[
            Field(
                "ip",
                "Address",
                value="" if backend is None else backend["ip"],
                help="In a network that the pool allows. Empty: no backend.",
                limits={"maxlength": 45},
            ),
            Field(
                "ports",
                "Ports",
                value="" if backend is None else " ".join(map(str, backend["ports"])),
                help=_describe_ports(claim),
            ),
        ],
        reason="optional",
        nothing="" if claim.holds and claim.ports else "The claim holds no ports.",
    )

    def perform(given: ConfirmInput) -> Done:
        set_backend(
            claim_id=claim.id,
            generation=claim.generation,
            backend=_read(given),
            reason=given.reason,
        )
        what = given.values["ip"] or "no backend"
        return Done(f"Claim {claim.id} is routed to {what}.")

    return confirm(request, question, perform, "claims")


def _describe_ports(claim: ClaimView) -> str:
    named = [f"{port['port']}/{port['protocol']}" for port in claim.ports if port["port"]]
    if named:
        return f"One for each of {', '.join(dict.fromkeys(named))}. Empty: these ports."
    return "One for all numbers of the claim, or one for each."


def _read(given: ConfirmInput) -> BackendRequest | None:
    ip, words = given.values["ip"], given.values["ports"].replace(",", " ").split()
    if not ip:
        return None
    wrong = [word for word in words if not (word.isdecimal() and 1 <= int(word[:9]) <= LAST_PORT)]
    if wrong:
        text = f"{wrong[0][:20]} is not a port."
        raise Invalid(fields=[FieldError("ports", text, f"Use numbers from 1 to {LAST_PORT}.")])
    ports = tuple(int(word) for word in words)
    if len(ports) == 1:
        return BackendRequest(ip, port=ports[0])
    return BackendRequest(ip, ports=ports or None)
