"""Git URLs that agents fetch: https and ssh, from hosts that the pool allows."""

import re
from collections.abc import Iterable
from typing import TypeGuard
from urllib.parse import urlsplit

LONGEST_URL = 500
USUAL_PORTS = {"https": 443, "ssh": 22}
HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}")
SCP = re.compile(rf"(?:{USER.pattern}@)?([A-Za-z0-9][A-Za-z0-9.-]{{0,252}}):([^/:\s-][^:\s]*)")
URL_RULE = "Write https://host/path or ssh://git@host/path, without a password."


def is_git_url(url: object) -> TypeGuard[str]:
    """Rejects also texts that git reads as an option, a remote helper or a local file."""
    if (
        not isinstance(url, str)
        or not 0 < len(url) <= LONGEST_URL
        or not url.isascii()
        or not url.isprintable()
        or " " in url
    ):
        return False
    if url.startswith("-") or "::" in url or "\\" in url:
        return False
    if "://" not in url:
        return SCP.fullmatch(url) is not None and ".." not in url
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    if (
        parts.scheme not in ("https", "ssh")
        or not parts.hostname
        or not HOST.fullmatch(parts.hostname)
        or port == 0
    ):
        return False
    if (
        parts.password is not None
        or parts.query
        or parts.fragment
        or len(parts.path) < 2
        or ".." in parts.path
    ):
        return False
    return parts.username is None or (
        parts.scheme == "ssh" and USER.fullmatch(parts.username) is not None
    )


def host_of(url: str) -> str:
    """The host of a URL, with a port that differs from the default of the scheme. The agent
    derives the host in the same way (slots/agent/executors/git.py).
    """
    if "://" not in url:
        match = SCP.fullmatch(url)
        return match[1].lower() if match else ""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    return host if parts.port in (None, USUAL_PORTS.get(parts.scheme)) else f"{host}:{parts.port}"


def is_host_allowed(host: str, allowed: Iterable[str]) -> bool:
    """A name without a port allows only the default port; *.example.com allows all subdomains."""
    return any(
        host == each or (each.startswith("*.") and host.endswith(each[1:]) and host != each[1:])
        for each in allowed
    )
