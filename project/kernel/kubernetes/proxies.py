"""Through which proxy a server is reached. As kubectl does it: the one that the cluster names in
the kubeconfig, whatever NO_PROXY says, else that of the environment, whose rules are those of Go.
"""

import base64
import ipaddress
import ssl
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies

from project.kernel.kubernetes.deadline import limit_tls
from project.kernel.kubernetes.errors import describe
from project.kernel.outbox.operations import Misconfigured

SPOKEN = ("http", "https")
PORTS = {"http": 80, "https": 443}
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def choose_proxy(configuration: Any, words: str) -> None:
    """Its proxy is that of the kubeconfig, or empty."""
    url = configuration.proxy or of_environment(configuration.host)
    if not url:
        return
    configuration.proxy, configuration.proxy_headers = split(url, words)
    if configuration.proxy.startswith("https:"):
        try:
            configuration.proxy_ssl_context = trust(
                configuration.ssl_ca_cert, is_verified=configuration.verify_ssl
            )
        except OSError as error:
            raise Misconfigured(
                f"The authority of {words} can't be read: {describe(error)}. Mend the kubeconfig."
            ) from error


def of_environment(url: str) -> str:
    proxies = getproxies()
    return (
        "" if is_left_out(url, proxies.get("no") or "") else proxies.get(urlsplit(url).scheme) or ""
    )


def is_left_out(url: str, told: str) -> bool:
    """Whether NO_PROXY, or being on this machine, keeps an address from the proxy of
    the environment.
    """
    found = urlsplit(url)
    try:
        host, port = (
            (found.hostname or "").lower(),
            str(found.port or PORTS.get(found.scheme) or ""),
        )
    except ValueError:  # no address at all: whoever goes there says so
        return True
    address = read_address(host)
    if not host or host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(fits(entry.strip().lower(), host, address, port) for entry in told.split(","))


def fits(entry: str, host: str, address: Address | None, port: str) -> bool:
    """*, a network, an address or a name (with all below it; from a dot on, only what is below
    it), each with a port or without.
    """
    if entry in ("", "*"):
        return entry == "*"
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, colon, wanted = entry.rpartition(":")
    if not colon or (":" in name and not name.endswith("]")):
        name, wanted = entry, ""
    if wanted not in ("", port):
        return False
    name = name.strip("[]").removeprefix("*")
    if address is not None:
        return address == read_address(name)
    return (
        host.endswith(name)
        if name.startswith(".")
        else bool(name) and (host == name or host.endswith(f".{name}"))
    )


def read_address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def split(url: str, words: str) -> tuple[str, dict[str, str] | None]:
    """Its address, and what it is told about us: a password stays out of an address, which stands
    in errors. Nor do those of Python that quote what they can't read."""
    try:
        found = urlsplit(url if "://" in url else f"http://{url}")
        has_address = bool(found.hostname) and found.port != 0
    except ValueError:
        raise unusable(words, "it is no address") from None
    if found.scheme not in SPOKEN:
        raise unusable(
            words,
            f"it speaks {found.scheme or 'nothing that is known'}, Berth speaks "
            f"{' and '.join(SPOKEN)}",
        )
    if not has_address:
        raise unusable(words, "it is no address")
    address = found._replace(netloc=found.netloc.rpartition("@")[2]).geturl()
    if found.username is None:
        return address, None
    told = f"{unquote(found.username)}:{unquote(found.password or '')}".encode()
    return address, {"proxy-authorization": f"Basic {base64.b64encode(told).decode()}"}


def unusable(words: str, why: str) -> Misconfigured:
    return Misconfigured(
        f"The proxy of {words} can't be used: {why}. Name it like http://proxy.example.com:3128."
    )


def trust(authority: str | None, *, is_verified: bool = True) -> ssl.SSLContext:
    """TLS to a proxy, whose authority is one of this machine or that of the cluster."""
    context = limit_tls(ssl.create_default_context())
    if not is_verified:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif authority:
        context.load_verify_locations(authority)
    return context
