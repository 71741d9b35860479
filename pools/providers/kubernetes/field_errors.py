"""Refusals of the API server as errors at fields of the pool."""

import re

from project.kernel.errors import FieldError
from project.kernel.kubernetes.errors import LONGEST, message_of
from project.kernel.kubernetes.objects import Object

WHERE = (
    (r"spec\.containers\[\d+\]\.image\b", "image"),
    (r"spec\.containers\[\d+\]\.command", "command"),
    (r"spec\.containers\[\d+\]\.args", "args"),
    (r"spec\.containers\[\d+\]\.resources\.(requests|limits)(?:\[([^\]]+)\])?", "resources"),
    (r"spec\.containers\[\d+\]\.env", "env"),
    (r"spec\.containers\[\d+\]\.securityContext", "user"),
    (r"spec\.securityContext", "user"),
    (r"spec\.tolerations(\[\d+\])?(\.\w+)?", "tolerations"),
    (r"spec\.nodeSelector", "node_selector"),
    (r"spec\.serviceAccountName", "service_account"),
    (r"spec\.imagePullSecrets(\[\d+\])?", "image_pull_secrets"),
    (r"spec\.terminationGracePeriodSeconds", "grace"),
    (r"metadata\.labels", "labels"),
    (r"metadata\.annotations", "annotations"),
)
REFUSED = "The cluster refuses the value:"
# Refusals of admission, which come as a sentence.
SAID = (
    (
        r"service ?account",
        "service_account",
        "Create it in the namespace, or name another.",
    ),
    (
        r"violates PodSecurity",
        "user",
        "Change the policy of the namespace, or use the defaults of user and writable_root.",
    ),
    (
        r"must specify (limits|requests)",
        "resources",
        "The namespace has a quota: set requests and limits.",
    ),
    (
        r"(maximum|minimum|limit to request ratio).*(usage|ratio)",
        "resources",
        "The namespace has a limit range: stay within it.",
    ),
    (r"image", "image", "Name an image that the cluster admits."),
)


def fields_of(body: Object, where: str) -> list[FieldError]:
    """An error for each cause, at its field of the pool."""
    found = []
    for cause in (body.get("details") or {}).get("causes") or ():
        path = str(cause.get("field") or "")
        message = str(cause.get("message") or cause.get("reason") or "no reason given")
        found.append(
            FieldError(
                _field(path, where),
                _sentence(message),
                f"The cluster names the field {path}." if path else "",
            )
        )
    return found or [_said_field(message_of(body), where)]


def _field(path: str, where: str) -> str:
    for pattern, name in WHERE:
        if match := re.match(pattern, path):
            groups = match.groups()
            if name == "resources":
                return f"{where}.{name}.{groups[0]}" + (f".{groups[1]}" if groups[1] else "")
            return f"{where}.{name}{''.join(group or '' for group in groups)}"
    return where


def _said_field(message: str, where: str) -> FieldError:
    for pattern, name, way_out in SAID:
        if re.search(pattern, message, re.IGNORECASE):
            return FieldError(f"{where}.{name}", f"{REFUSED} {message}", way_out)
    way_out = "Correct the template, or the policy of the namespace."
    return FieldError(where, f"{REFUSED} {message}", way_out)


def _sentence(message: str) -> str:
    text = " ".join(message.split())[:LONGEST]
    return f"{REFUSED} {text}{'' if text.endswith('.') else '.'}"
