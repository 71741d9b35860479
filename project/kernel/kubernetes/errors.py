"""What the API server, or nobody, answered, as the types that decide when to try again, in words
that say what to do. Pure: it knows no client library."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from project.kernel.outbox.operations import (
    ConflictError,
    Misconfigured,
    NotFoundOutside,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Unauthorised,
)

LONGEST = 400
MOST_WAIT = 600.0  # seconds: what a server may ask us to wait
ROLE = "deploy/kubernetes/role.yaml"


class Expired(ProviderError):
    """410: what we remember is too old. List anew."""

    code = "expired"


class AlreadyExists(ConflictError):
    """409 of a create: it may be our own, from a try whose answer was lost."""


class ObjectChanged(ConflictError):
    """409 of a delete: the name belongs to another object, or it was written to meanwhile."""


@dataclass(frozen=True, slots=True)
class ApiCall:
    """What was asked, for the words of an error."""

    verb: str  # create, list, ...
    resource: str  # pods, secrets, namespaces
    name: str = ""
    place: str = ""  # "namespace ci of context prod"
    namespace: str = ""

    @property
    def words(self) -> str:
        return f"{self.verb} {self.resource}{f' {self.name}' if self.name else ''} in {self.place}"


def explain(
    status: int, body: Mapping[str, Any], call: ApiCall, retry_after: float | None = None
) -> ProviderError:
    """Of an answer that is none of success."""
    said = message_of(body)
    if status == 401:
        return Unauthorised(
            f"The cluster does not take our credentials ({call.place}). Renew them: the kubeconfig "
            "is read again by itself."
        )
    if status == 403:
        return _forbidden(body, said, call)
    if status == 404:
        return _not_found(body, said, call)
    if status == 409:
        if call.verb == "create":
            return AlreadyExists(f"There is one called {call.name} already in {call.place}.")
        return ObjectChanged(
            f"{call.resource} {call.name} in {call.place} has changed meanwhile: {said}"
        )
    if status == 410:
        return Expired(f"What we knew of {call.place} is too old: {said}")
    if status in (400, 422):
        return _with(
            Misconfigured(
                f"The cluster refuses to {call.words}: {said} Mend provider.template of the pool."
            ),
            body,
        )
    if status == 429:
        wait = None if retry_after is None else min(max(retry_after, 0.0), MOST_WAIT)
        return Throttled(
            f"The cluster asks us to slow down ({call.place}). It is asked again by itself.",
            retry_after=wait,
        )
    if status >= 500:
        wait = None if retry_after is None else min(max(retry_after, 0.0), MOST_WAIT)
        return ProviderError(
            f"The cluster answers {status} to {call.words}: {said} It is asked again by itself.",
            retry_after=wait,
        )
    return ProviderError(f"The cluster answers {status} to {call.words}: {said}")


def _with(error: Misconfigured, body: Mapping[str, Any]) -> Misconfigured:
    error.body = body
    return error


def _forbidden(body: Mapping[str, Any], said: str, call: ApiCall) -> ProviderError:
    if "exceeded quota" in said:
        return QuotaExceeded(
            f"A quota of {call.place} is used up: {said} Raise it, or lower members.max."
        )
    if "being terminated" in said:
        words = (
            f"The namespace is being deleted ({call.place}). Make it again, or name another one "
            "in a new pool."
        )
        return _with(Misconfigured(words), body)
    if (
        call.resource == "pods"
        and call.verb == "create"
        and not re.search(r"cannot create resource", said)
    ):
        words = (
            f"The cluster does not admit the pod ({call.place}): {said} Mend provider.template, or "
            "what the namespace allows."
        )
        return _with(Misconfigured(words), body)
    what = f"We may not {call.verb} {call.resource} in {call.place}."
    return Unauthorised(
        f"{what} Give our account the role in {ROLE}; if the namespace is gone, make it again. The "
        f"cluster says: {said}"
    )


def _not_found(body: Mapping[str, Any], said: str, call: ApiCall) -> ProviderError:
    details = body.get("details") or {}
    is_namespace = (
        details.get("kind") == "namespaces"
        or re.search(r'namespaces? "[^"]*" not found', said)
        or call.resource == "namespaces"
    )
    if is_namespace:
        return NamespaceGone(call)
    is_thing = details.get("name") == call.name or f'"{call.name}" not found' in said
    if call.verb in ("list", "watch", "create") or not is_thing:
        return Misconfigured(
            f"Nobody at this address knows {call.resource} ({call.place}). See that the context "
            "names an API server."
        )
    return NotFoundOutside(f"There is no {call.resource} {call.name} in {call.place}.")


class NamespaceGone(Misconfigured):
    """Not the NotFound of a thing in it: nothing is known to be wanted gone."""

    def __init__(self, call: ApiCall) -> None:
        super().__init__(
            f"There is no {call.place}. Make the namespace, with its role ({ROLE}); members are "
            "made by themselves then."
        )


def unreachable(where: str, error: str, *, timeout: float | None = None) -> ProviderError:
    if timeout is not None:
        return ProviderError(
            f"The cluster does not answer within {timeout:g} s ({where}). It is asked "
            "again by itself."
        )
    return ProviderError(
        f"The cluster is not reachable ({where}): {error}. It is asked again by itself."
    )


def too_slow(where: str, seconds: float) -> ProviderError:
    words = (
        f"The cluster's answer is not complete after {seconds:g} s ({where}). It is asked "
        "again by itself;"
    )
    return ProviderError(f"{words} see what slows it down on the way.")


def describe(error: BaseException) -> str:
    text = str(getattr(error, "reason", "") or error) or type(error).__name__
    return " ".join(text.split())[:200].rstrip(".")


def message_of(body: Mapping[str, Any]) -> str:
    text = " ".join(
        str(body.get("message") or body.get("reason") or "it does not say why.").split()
    )
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return text if text.endswith((".", "…", "!")) else f"{text}."
