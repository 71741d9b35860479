"""The proxy to a server, chosen like kubectl: the proxy of the cluster in the kubeconfig, without
regard to NO_PROXY, or else the proxy of the environment with the rules of Go.
"""

import base64
import ipaddress
import ssl
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies

from kubernetes.client.configuration import Configuration

from project.kernel.kubernetes.deadline import limit_tls
from project.kernel.kubernetes.errors import describe
from project.kernel.outbox.operations import Misconfigured
from project.kernel.security.client_address import Address, read_address

SPOKEN = ("http", "https")
PORTS = {"http": 80, "https": 443}


def choose_proxy(configuration: Configuration, words: str) -> None:
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
                f"The authority of {words} can't be read: {describe(error)}. Correct the "
                "kubeconfig."
            ) from error


def of_environment(url: str) -> str:
    """The proxy of the environment for a URL; empty: none."""
    proxies = getproxies()
    if is_left_out(url, proxies.get("no") or ""):
        return ""
    return proxies.get(urlsplit(url).scheme) or ""


def is_left_out(url: str, no_proxy: str) -> bool:
    """Whether a URL is on this machine, or NO_PROXY exempts it from the proxy of the environment.
    urllib, requests and the official client match networks or ports in other ways than Go.
    """
    found = urlsplit(url)
    try:
        host = (found.hostname or "").lower()
        port = str(found.port or PORTS.get(found.scheme) or "")
    except ValueError:  # the connection reports the invalid address
        return True
    address = read_address(host)
    if not host or host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(fits(entry.strip().lower(), host, address, port) for entry in no_proxy.split(","))


def fits(entry: str, host: str, address: Address | None, port: str) -> bool:
    """Match an entry of NO_PROXY: `*`, a network, or an address or name with or without a port. A
    name covers its subdomains; with a leading dot it covers only these.
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
    if name.startswith("."):
        return host.endswith(name)
    return bool(name) and (host == name or host.endswith(f".{name}"))


def split(url: str, words: str) -> tuple[str, dict[str, str] | None]:
    """The address of a proxy and its authentication header. Errors show the address, so it has no
    password; the errors of urlsplit quote their input and are dropped.
    """
    try:
        found = urlsplit(url if "://" in url else f"http://{url}")
        has_address = bool(found.hostname) and found.port != 0
    except ValueError:
        raise unusable(words, "it is no address") from None
    if found.scheme not in SPOKEN:
        scheme = found.scheme or "no known protocol"
        raise unusable(words, f"it speaks {scheme}, Berth speaks {' and '.join(SPOKEN)}")
    if not has_address:
        raise unusable(words, "it is no address")
    address = found._replace(netloc=found.netloc.rpartition("@")[2]).geturl()
    if found.username is None:
        return address, None
    login = f"{unquote(found.username)}:{unquote(found.password or '')}".encode()
    return address, {"proxy-authorization": f"Basic {base64.b64encode(login).decode()}"}


def unusable(words: str, fault: str) -> Misconfigured:
    return Misconfigured(
        f"The proxy of {words} can't be used: {fault}. Name it like http://proxy.example.com:3128."
    )


def trust(authority: str | None, *, is_verified: bool = True) -> ssl.SSLContext:
    """TLS to a proxy. Trusts the authorities of this machine and that of the cluster."""
    context = limit_tls(ssl.create_default_context())
    if not is_verified:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif authority:
        context.load_verify_locations(authority)
    return context
