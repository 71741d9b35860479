"""Answers of the API server, and silence, as the error types that decide the retry, with the way
out. Pure: this module knows no client library.
"""

import re
from dataclasses import dataclass

from project.kernel.kubernetes.objects import Object
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
MOST_WAIT = 600.0  # seconds: the longest Retry-After that Berth obeys
ROLE = "deploy/kubernetes/role.yaml"


class Expired(ProviderError):
    """410: a resource version or the token of a page is too old."""

    code = "expired"


class AlreadyExists(ConflictError):
    """409 of a create. An earlier attempt, with a lost answer, may have created the object."""


class ObjectChanged(ConflictError):
    """409 of a delete or patch: the name belongs to another object, or the object has changed."""


@dataclass(frozen=True, slots=True)
class ApiCall:
    """The call, for the text of an error."""

    verb: str  # create, list, ...
    resource: str  # pods, secrets, namespaces
    name: str = ""
    place: str = ""  # "namespace ci of context prod"

    @property
    def words(self) -> str:
        return f"{self.verb} {self.resource}{f' {self.name}' if self.name else ''} in {self.place}"


def explain(
    status: int, body: Object, call: ApiCall, retry_after: float | None = None
) -> ProviderError:
    """The error for an answer that is not a success."""
    message = message_of(body)
    wait = None if retry_after is None else min(max(retry_after, 0.0), MOST_WAIT)
    if status == 401:
        return Unauthorised(
            f"The cluster rejects the credentials ({call.place}). Renew them in the kubeconfig; "
            "Berth reads the file again."
        )
    if status == 403:
        return _forbidden(body, message, call)
    if status == 404:
        return _not_found(body, message, call)
    if status == 409:
        if call.verb == "create":
            return AlreadyExists(f"{call.resource} {call.name} in {call.place} exists already.")
        return ObjectChanged(
            f"{call.resource} {call.name} in {call.place} has changed meanwhile: {message}"
        )
    if status == 410:
        return Expired(f"The known version of {call.place} is too old: {message}")
    if status in (400, 422):
        return _misconfigured(
            f"The cluster refuses to {call.words}: {message} Correct provider.template.",
            body,
        )
    if status == 429:
        return Throttled(
            f"The cluster asks Berth to slow down ({call.place}). Berth tries again.",
            retry_after=wait,
        )
    error = f"The cluster answers {status} to {call.words}: {message}"
    if status >= 500:
        return ProviderError(f"{error} Berth tries again.", retry_after=wait)
    return ProviderError(error)


def _misconfigured(text: str, body: Object) -> Misconfigured:
    error = Misconfigured(text)
    error.body = body
    return error


def _forbidden(body: Object, message: str, call: ApiCall) -> ProviderError:
    if "exceeded quota" in message:
        return QuotaExceeded(
            f"A quota of {call.place} is used up: {message} Raise the quota, or lower members.max."
        )
    if "being terminated" in message:
        return _misconfigured(
            f"The namespace is being deleted ({call.place}). Create it again, or name another "
            "namespace in a new pool.",
            body,
        )
    is_create = call.resource == "pods" and call.verb == "create"
    if is_create and "cannot create resource" not in message:
        return _misconfigured(
            f"The cluster does not admit the pod ({call.place}): {message} "
            "Correct provider.template, or the policy of the namespace.",
            body,
        )
    return Unauthorised(
        f"Berth may not {call.verb} {call.resource} in {call.place}. Give its account the role in "
        f"{ROLE}; if the namespace is gone, create it. The cluster says: {message}"
    )


def _not_found(body: Object, message: str, call: ApiCall) -> ProviderError:
    details = body.get("details") or {}
    is_namespace = (
        details.get("kind") == "namespaces"
        or re.search(r'namespaces? "[^"]*" not found', message)
        or call.resource == "namespaces"
    )
    if is_namespace:
        return NamespaceGone(call)
    is_named = details.get("name") == call.name or f'"{call.name}" not found' in message
    if call.verb in ("list", "watch", "create") or not is_named:
        return Misconfigured(
            f"The server does not know {call.resource} ({call.place}). Check that the context "
            "names an API server."
        )
    return NotFoundOutside(f"There is no {call.resource} {call.name} in {call.place}.")


class NamespaceGone(Misconfigured):
    """404 of the namespace. A missing pod is a different error: NotFoundOutside confirms that a
    pod is gone.
    """

    def __init__(self, call: ApiCall) -> None:
        super().__init__(
            f"There is no {call.place}. Create the namespace, with its role ({ROLE}); Berth then "
            "creates the members."
        )


def no_answer(where: str, seconds: float) -> ProviderError:
    return ProviderError(
        f"The cluster does not answer within {seconds:g} s ({where}). Berth tries again."
    )


def unreachable(where: str, error: str) -> ProviderError:
    return ProviderError(f"The cluster is not reachable ({where}): {error}. Berth tries again.")


def too_slow(where: str, seconds: float) -> ProviderError:
    return ProviderError(
        f"The cluster's answer is not complete after {seconds:g} s ({where}). Berth tries again; "
        "check the network and the proxies between Berth and the cluster."
    )


def describe(error: BaseException) -> str:
    text = str(getattr(error, "reason", "") or error) or type(error).__name__
    return " ".join(text.split())[:200].rstrip(".")


def message_of(body: Object) -> str:
    text = str(body.get("message") or body.get("reason") or "it does not say why.")
    text = " ".join(text.split())
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return text if text.endswith((".", "…", "!")) else f"{text}."
