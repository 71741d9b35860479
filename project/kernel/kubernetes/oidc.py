"""A token that an identity provider gave and that has run out is renewed there. The library would
wait for it without end, take whoever answers for it where no authority is named, and go on with the
old token when it is refused."""

import base64
import json
import ssl
from collections.abc import Mapping
from typing import Any

import urllib3

from project.kernel.kubernetes.deadline import limit_connections, within
from project.kernel.kubernetes.proxies import of_environment, split, trust
from project.kernel.outbox.operations import Misconfigured, ProviderError

PATIENCE = 10.0  # seconds for all of it
LONGEST = 100
GONE = (OSError, urllib3.exceptions.HTTPError)


def refresh(_: Any, provider: Any) -> None:
    """In the library's place: what it finds is put into the configuration that was read, and
    nowhere else.
    """
    told: dict[str, Any] = provider["config"].value
    for name in ("idp-issuer-url", "client-id", "refresh-token"):
        if not told.get(name):
            raise Misconfigured(
                "The token of the kubeconfig's user has run out, and its auth-provider has no "
                f"{name}. Sign in anew."
            )
    where = f"The identity provider {told['idp-issuer-url']}"
    with within(PATIENCE) as clock:
        try:
            found = _fetch(told, where)
        except GONE as error:
            if clock.is_over:
                raise too_slow(where) from error
            words = " ".join(str(getattr(error, "reason", "") or error).split())[:LONGEST]
            raise ProviderError(
                f"{where} is not reachable: {words}. It is asked again by itself."
            ) from error
        if clock.is_over:  # half an answer
            raise too_slow(where)
    told["id-token"] = str(found["id_token"])
    told["refresh-token"] = str(found.get("refresh_token") or told["refresh-token"])


def too_slow(where: str) -> ProviderError:
    return ProviderError(
        f"{where} does not answer within {PATIENCE:g} s. It is asked again by itself."
    )


def _fetch(told: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    about = _read(
        _request(
            "GET",
            f"{str(told['idp-issuer-url']).rstrip('/')}/.well-known/openid-configuration",
            told,
        ),
        where,
    )
    if not about.get("token_endpoint"):
        raise Misconfigured(
            f"{where} does not say where tokens are renewed. See idp-issuer-url in the kubeconfig."
        )
    fields = {"grant_type": "refresh_token", "refresh_token": str(told["refresh-token"])}
    headers = {"Accept": "application/json"}
    if told.get("client-secret"):
        headers |= urllib3.make_headers(basic_auth=f"{told['client-id']}:{told['client-secret']}")
    else:
        fields["client_id"] = str(told["client-id"])
    renewed = _request(
        "POST",
        str(about["token_endpoint"]),
        told,
        fields=fields,
        headers=headers,
        encode_multipart=False,
    )
    found = _read(renewed, where)
    if not found.get("id_token"):
        raise Misconfigured(
            f"{where} answers without an id_token. Sign in anew, with the scope openid."
        )
    return found


def _request(method: str, url: str, told: Mapping[str, Any], **more: Any) -> Any:
    """Through the proxy of the environment, if it names one for this address: that of the
    kubeconfig is the cluster's.
    """
    manages: dict[str, Any] = {"retries": False, "timeout": PATIENCE, "ssl_context": _trust(told)}
    proxy = of_environment(url)
    if proxy:
        address, headers = split(proxy, "the identity provider")
        http: urllib3.PoolManager = urllib3.ProxyManager(
            address, proxy_headers=headers, proxy_ssl_context=trust(None), **manages
        )
    else:
        http = urllib3.PoolManager(**manages)
    limit_connections(http)
    try:
        return http.request(method, url, **more)
    finally:
        http.clear()


def _trust(told: Mapping[str, Any]) -> ssl.SSLContext:
    """The authority that is named, else those of this machine."""
    try:
        if data := told.get("idp-certificate-authority-data"):
            return ssl.create_default_context(cadata=base64.b64decode(str(data)).decode())
        return ssl.create_default_context(cafile=told.get("idp-certificate-authority"))
    except (OSError, ValueError) as error:
        raise Misconfigured(
            "The authority of the identity provider in the kubeconfig can't be read: "
            f"{error}. Mend it."
        ) from error


def _read(response: Any, where: str) -> Mapping[str, Any]:
    try:
        found = json.loads(response.data)
    except ValueError:
        found = None
    known = found if isinstance(found, dict) else {}
    if response.status >= 500 or response.status == 429:
        raise ProviderError(f"{where} answers {response.status}. It is asked again by itself.")
    if response.status != 200:
        why = f"{response.status} {str(known.get('error') or '')[:LONGEST]}".strip()
        raise Misconfigured(
            f"{where} does not renew our token: {why}. Sign in anew, and put the kubeconfig there."
        )
    if not known:
        raise ProviderError(
            f"{where} does not answer with an object of JSON. It is asked again by itself."
        )
    return known
