"""Signed calls to the API and the search for credentials, by the SDK of Tencent Cloud.

No other module of this package imports the SDK, and `clients` loads this module with the first
call. The generic client of the SDK is enough: the classes of CLB would cost each worker 65 MB.
"""

import hashlib
import logging
import os
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from requests.adapters import HTTPAdapter
from tencentcloud.common.common_client import CommonClient
from tencentcloud.common.credential import (
    CVMRoleCredential,
    DefaultTkeOIDCRoleArnProvider,
    EnvironmentVariableCredential,
    ProfileCredential,
)
from tencentcloud.common.exception import TencentCloudSDKException
from tencentcloud.common.profile.client_profile import ClientProfile
from tencentcloud.common.profile.http_profile import HttpProfile

from pools.providers.tencent.errors import NoAnswer, error_of
from project.kernel.outbox.operations import ProviderError, Unauthorised

logger = logging.getLogger(__name__)

SERVICE, VERSION = "clb", "2018-03-17"
CONNECTIONS = 64
TIMEOUT = 10  # seconds until a connection stands, and between two parts of an answer
METADATA_TIMEOUT = 1.0  # seconds; outside of the cloud no server answers
TKE_ROLE = "TKE_ROLE_ARN"
MISSING = (
    "The workers have no credentials of Tencent Cloud. Set TENCENTCLOUD_SECRET_ID and "
    "TENCENTCLOUD_SECRET_KEY, write ~/.tencentcloud/credentials, or run them with a role of TKE or "
    "CVM."
)


class SdkTransport:
    """Calls of one account in one region. Safe in several threads."""

    def __init__(self, region: str, scheme: str, host: str) -> None:
        self._region = region
        credential, identity = find_credential()
        # Tells accounts apart: what the credentials belong to, without naming them.
        self.account = hashlib.sha256(identity.encode()).hexdigest()[:12]
        http = HttpProfile(protocol=scheme, endpoint=host, reqTimeout=TIMEOUT, keepAlive=True)
        profile = ClientProfile(httpProfile=http, language="en-US")
        self._client = CommonClient(SERVICE, VERSION, credential, region, profile)
        # The SDK keeps ten connections, and opens one for each further thread and call.
        self._client.request.conn._session.mount(
            f"{scheme}://", HTTPAdapter(pool_maxsize=CONNECTIONS)
        )

    def call(self, action: str, parameters: Mapping[str, object]) -> Mapping[str, object]:
        """The answer. Raises a typed error."""
        try:
            answer = self._client.call_json(action, dict(parameters))
        except TencentCloudSDKException as error:
            code, message = str(error.code or "ClientError"), str(error.message or "")
            if request := str(error.requestId or ""):
                # Tencent Cloud needs the id to explain a refusal. Some messages repeat it.
                logger.info("%s failed in %s: %s, request %s", action, self._region, code, request)
                message = message.replace(request, "…")
            raise error_of(action, self._region, code, message) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            # A cut answer, an answer that is no JSON, or a credential that cannot be renewed.
            reason = f"{type(error).__name__}: {error}"
            raise NoAnswer(f"{action} got no answer in {self._region}: {reason}.") from error
        found = answer.get("Response") if isinstance(answer, dict) else None
        if not isinstance(found, dict):
            raise NoAnswer(f"{action} got an unreadable answer in {self._region}.")
        return found

    def close(self) -> None:
        self._client.request.conn._session.close()


def find_credential() -> tuple[object, str]:
    """A credential and the identity behind it. The order is that of the SDK's default chain, but
    the role of a TKE service account comes before files and before the role of its node.
    """
    if found := EnvironmentVariableCredential().get_credential():
        return found, f"key {found.secret_id}"
    if os.environ.get(TKE_ROLE):
        return _tke_credential(), f"role {os.environ[TKE_ROLE]}"
    if found := ProfileCredential().get_credential():
        return found, f"key {found.secret_id}"
    # The SDK asks the metadata server without a timeout.
    if _is_on_cvm() and (found := CVMRoleCredential().get_credential()):
        return found, f"role of CVM {found.role}"
    raise Unauthorised(MISSING)


def _tke_credential() -> object:
    try:
        return DefaultTkeOIDCRoleArnProvider().get_credential()
    except OSError as error:
        text = f"The TKE role of the workers is incomplete: {error}. Restart them with the role."
        raise Unauthorised(text) from error
    except TencentCloudSDKException as error:
        raise ProviderError(f"The TKE role of the workers gave no credentials: {error}.") from error


def _is_on_cvm() -> bool:
    address = urlsplit(CVMRoleCredential._metadata_endpoint)
    try:
        socket.create_connection((str(address.hostname), 80), METADATA_TIMEOUT).close()
    except OSError:
        return False
    return True
