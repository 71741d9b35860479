"""Renewal of an expired OIDC token at its identity provider. The official client waits for the
provider without end, trusts any server when the kubeconfig names no authority, and keeps using the
old token after a refusal.
"""

import base64
import json
import ssl
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlencode

import urllib3
from urllib3.response import BaseHTTPResponse

from project.kernel.kubernetes.deadline import limit_connections, limit_tls, within
from project.kernel.kubernetes.errors import describe
from project.kernel.kubernetes.objects import Object
from project.kernel.kubernetes.proxies import of_environment, split, trust
from project.kernel.outbox.operations import Misconfigured, ProviderError

PATIENCE = 10.0  # seconds for the whole renewal
MAX_REASON_LENGTH = 100
GONE = (OSError, urllib3.exceptions.HTTPError)


class ConfigNode(Protocol):
    value: dict[str, str]


def refresh(_: object, provider: Mapping[str, ConfigNode]) -> None:
    """Replacement for the client's method. The new tokens go into the configuration in memory, not
    into the kubeconfig.
    """
    options = provider["config"].value
    for name in ("idp-issuer-url", "client-id", "refresh-token"):
        if not options.get(name):
            raise Misconfigured(
                "The token of the kubeconfig's user has expired, and its auth-provider has no "
                f"{name}. Sign in again."
            )
    where = f"The identity provider {options['idp-issuer-url']}"
    with within(PATIENCE) as deadline:
        try:
            found = _fetch(options, where)
        except GONE as error:
            if deadline.is_over:
                raise ProviderError(
                    f"{where} does not answer within {PATIENCE:g} s. Berth tries again."
                ) from error
            raise ProviderError(
                f"{where} is not reachable: {describe(error)}. Berth tries again."
            ) from error
    options["id-token"] = str(found["id_token"])
    options["refresh-token"] = str(found.get("refresh_token") or options["refresh-token"])


def _fetch(options: Mapping[str, str], where: str) -> Object:
    url = f"{options['idp-issuer-url'].rstrip('/')}/.well-known/openid-configuration"
    endpoint = _read(_request("GET", url, options), where).get("token_endpoint")
    if not endpoint:
        raise Misconfigured(
            f"{where} names no token_endpoint. Check idp-issuer-url in the kubeconfig."
        )
    fields = {"grant_type": "refresh_token", "refresh_token": options["refresh-token"]}
    headers = {"Accept": "application/json"}
    if secret := options.get("client-secret"):
        headers |= urllib3.make_headers(basic_auth=f"{options['client-id']}:{secret}")
    else:
        fields["client_id"] = options["client-id"]
    headers["Content-Type"] = "application/x-www-form-urlencoded"
    found = _read(_request("POST", str(endpoint), options, urlencode(fields), headers), where)
    if not found.get("id_token"):
        raise Misconfigured(
            f"{where} answers without an id_token. Sign in again, with the scope openid."
        )
    return found


def _request(
    method: str,
    url: str,
    options: Mapping[str, str],
    body: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> BaseHTTPResponse:
    """Send through the proxy of the environment, if it names one for this address. The proxy of
    the kubeconfig is only for the cluster.
    """
    proxy, context = of_environment(url), _trust(options)
    if proxy:
        address, proxy_headers = split(proxy, "the identity provider")
        http: urllib3.PoolManager = urllib3.ProxyManager(
            address,
            proxy_headers=proxy_headers,
            proxy_ssl_context=trust(None),
            ssl_context=context,
        )
    else:
        http = urllib3.PoolManager(ssl_context=context)
    limit_connections(http)
    try:
        return http.request(
            method, url, body=body, headers=headers, retries=False, timeout=PATIENCE
        )
    finally:
        http.clear()


def _trust(options: Mapping[str, str]) -> ssl.SSLContext:
    """Trust the authority of the kubeconfig, or else those of this machine."""
    file, data = (options.get(f"idp-certificate-authority{suffix}") for suffix in ("", "-data"))
    try:
        cadata = base64.b64decode(data).decode() if data else None
        return limit_tls(ssl.create_default_context(cafile=None if data else file, cadata=cadata))
    except (OSError, ValueError) as error:
        raise Misconfigured(
            "The authority of the identity provider in the kubeconfig can't be read: "
            f"{error}. Correct it."
        ) from error


def _read(response: BaseHTTPResponse, where: str) -> Object:
    try:
        found = json.loads(response.data)
    except ValueError:
        found = None
    known = found if isinstance(found, dict) else {}
    if response.status >= 500 or response.status == 429:
        raise ProviderError(f"{where} answers {response.status}. Berth tries again.")
    if response.status != 200:
        reason = f"{response.status} {str(known.get('error') or '')[:MAX_REASON_LENGTH]}".strip()
        raise Misconfigured(
            f"{where} does not renew the token: {reason}. Sign in again, and replace the "
            "kubeconfig."
        )
    if not known:
        raise ProviderError(f"{where} does not answer with a JSON object. Berth tries again.")
    return known
