"""Through which proxy a server is reached. As kubectl does it: the one that the cluster names in the kubeconfig, whatever NO_PROXY says,
else that of the environment."""

import ssl
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies

from urllib3.util import make_headers

from project.kernel.operations import Misconfigured

SPOKEN = ("http", "https")


def find_way(configuration: Any, words: str) -> None:
    """Its proxy is that of the kubeconfig, or empty."""
    url = configuration.proxy
    if not url:
        url, configuration.no_proxy = of_environment(configuration.host)
    if not url:
        return
    try:
        configuration.proxy, configuration.proxy_headers = split(url)
    except ValueError as error:
        raise Misconfigured(f"The proxy of {words} can't be used: {error}. Name it like http://proxy.example.com:3128.") from error
    if configuration.proxy.startswith("https:") and configuration.verify_ssl:
        configuration.proxy_ssl_context = trust(configuration.ssl_ca_cert)


def of_environment(url: str) -> tuple[str, str]:
    """What it says for this address: a proxy, and whom to reach without one."""
    proxies = getproxies()
    return proxies.get(urlsplit(url).scheme) or proxies.get("all") or "", proxies.get("no") or ""


def split(url: str) -> tuple[str, dict[str, str] | None]:
    """Its address, and what it is told about us: a password stays out of an address, which stands in errors."""
    found = urlsplit(url if "://" in url else f"http://{url}")
    if found.scheme not in SPOKEN:
        raise ValueError(f"it speaks {found.scheme or 'nothing that is known'}, Berth speaks {' and '.join(SPOKEN)}")
    try:
        has_address = bool(found.hostname) and found.port != 0
    except ValueError:  # its words hold what stands there, which may be a part of a password
        has_address = False
    if not has_address:
        raise ValueError("it has no address with a port")
    address = found._replace(netloc=found.netloc.rpartition("@")[2]).geturl()
    if found.username is None:
        return address, None
    return address, make_headers(proxy_basic_auth=f"{unquote(found.username)}:{unquote(found.password or '')}")


def trust(authority: str | None) -> ssl.SSLContext:
    """A proxy is vouched for by an authority that this machine trusts, or by that of the cluster."""
    context = ssl.create_default_context()
    if authority:
        context.load_verify_locations(authority)
    return context
