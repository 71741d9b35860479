"""A refusal of the API server at the fields of the pool that it comes from."""

import re
from collections.abc import Mapping
from typing import Any

from project.kernel.errors import FieldError
from project.kernel.kubernetes.errors import LONGEST, message_of

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
# Of admission, which answers in a sentence.
SAID = (
    (r"service ?account", "service_account", "Make it in the namespace, or name another one."),
    (
        r"violates PodSecurity",
        "user",
        "Let the namespace allow it, or leave user and writable_root as they are by default.",
    ),
    (
        r"must specify (limits|requests)",
        "resources",
        "The namespace has a quota: say requests and limits.",
    ),
    (
        r"(maximum|minimum|limit to request ratio).*(usage|ratio)",
        "resources",
        "The namespace has a limit range: stay within it.",
    ),
    (r"image", "image", "Name an image that the cluster admits."),
)


def fields_of(body: Mapping[str, Any], where: str) -> list[FieldError]:
    """Each cause at the field of the pool that it comes from."""
    found = []
    for cause in (body.get("details") or {}).get("causes") or ():
        path, message = (
            str(cause.get("field") or ""),
            str(cause.get("message") or cause.get("reason") or "it is refused"),
        )
        found.append(
            FieldError(
                _field(path, where),
                _sentence(message),
                f"The cluster calls it {path}." if path else "",
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
            return FieldError(f"{where}.{name}", f"The cluster refuses it: {message}", way_out)
    return FieldError(
        where,
        f"The cluster refuses it: {message}",
        "Mend the template, or what the namespace allows.",
    )


def _sentence(message: str) -> str:
    text = " ".join(message.split())[:LONGEST]
    return f"The cluster refuses it: {text}{'' if text.endswith('.') else '.'}"
