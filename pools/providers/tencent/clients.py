"""Clients by region and endpoint, kept by the process. The SDK is imported with the first one."""

import os
import threading
from collections.abc import Mapping
from importlib import import_module
from typing import Protocol

from pools.providers.base import PoolSnapshot
from pools.providers.tencent.options import endpoint_of

# Variables that decide which credentials are found: with others, another client is made.
VARIABLES = (
    "TENCENTCLOUD_SECRET_ID", "TENCENTCLOUD_SECRET_KEY", "TKE_ROLE_ARN", "TKE_PROVIDER_ID",
    "TKE_WEB_IDENTITY_TOKEN_FILE", "TKE_REGION",
)  # fmt: skip


class Transport(Protocol):
    account: str  # a digest that tells accounts apart

    def call(self, action: str, parameters: Mapping[str, object]) -> Mapping[str, object]:
        """The answer. Raises a typed error."""

    def close(self) -> None: ...


_transports: dict[tuple[str, ...], Transport] = {}
_lock = threading.Lock()


def transport_for(pool: PoolSnapshot) -> Transport:
    region = str(pool.options.get("region") or "")
    scheme, host = endpoint_of(pool.options)
    told = [os.environ.get(name, "") for name in VARIABLES]
    # A forked process must not share the connections of its parent.
    key = (str(os.getpid()), region, scheme, host, *told)
    with _lock:
        if key not in _transports:
            sdk = import_module("pools.providers.tencent.sdk")
            _transports[key] = sdk.SdkTransport(region, scheme, host)
        return _transports[key]


def forget() -> None:
    """Close all connections, for tests."""
    with _lock:
        for transport in _transports.values():
            transport.close()
        _transports.clear()
