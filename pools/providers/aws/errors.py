"""Errors of AWS as the types that decide when Berth retries.

An error is recognised by its code or by the name of its class, because this module does not import
botocore (see `account.py`).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from project.kernel.outbox.operations import (
    ConflictError,
    Misconfigured,
    NotFoundOutside,
    PermanentError,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Unauthorised,
)

THROTTLED = (
    "ThrottlingException",
    "Throttling",
    "RequestLimitExceeded",
    "TooManyRequestsException",
    "RequestThrottled",
    "RequestThrottledException",
    "ThrottledException",
    "PriorRequestNotComplete",
    "SlowDown",
)
RIGHTS = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")
UNAUTHORISED = (
    *RIGHTS,
    "AuthFailure",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "RequestTimeTooSkewed",
    "UnrecognizedClientException",
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "IncompleteSignature",
    "MissingAuthenticationToken",
    "OptInRequired",
)
NO_BALANCER = "LoadBalancerNotFound"
NOT_FOUND = (NO_BALANCER, "TargetGroupNotFound", "ListenerNotFound")
CONFLICT = (
    "DuplicateLoadBalancerName",
    "DuplicateTargetGroupName",
    "DuplicateListener",
    "ResourceInUse",
    "TargetGroupAssociationLimit",
    "OperationNotPermitted",
)
QUOTA = (
    "TooManyLoadBalancers",
    "TooManyListeners",
    "TooManyTargetGroups",
    "TooManyTargets",
    "TooManyCertificates",
    "TooManyRegistrationsForTargetId",
    "TooManyUniqueTargetGroupsPerLoadBalancer",
)
MISCONFIGURED = (
    "CertificateNotFound",
    "SubnetNotFound",
    "InvalidSubnet",
    "InvalidSubnetID.NotFound",
    "InvalidSubnetID.Malformed",
    "InvalidSecurityGroup",
    "InvalidScheme",
    "InvalidConfigurationRequest",
    "InvalidTarget",
    "AvailabilityZoneNotSupported",
    "IncompatibleProtocols",
    "UnsupportedCertificate",
    "UnsupportedProtocol",
    "SSLPolicyNotFound",
    "TooManyTags",
    "DuplicateTagKeys",
    "ValidationError",
)
TYPES: Mapping[str, type[ProviderError]] = {
    code: kind
    for codes, kind in (
        (THROTTLED, Throttled),
        (UNAUTHORISED, Unauthorised),
        (NOT_FOUND, NotFoundOutside),
        (CONFLICT, ConflictError),
        (QUOTA, QuotaExceeded),
        (MISCONFIGURED, Misconfigured),
    )
    for code in codes
}
CREDENTIALS = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "NoAuthTokenError",
    "TokenRetrievalError",
    "SSOTokenLoadError",
    "UnauthorizedSSOTokenError",
    "ProfileNotFound",
)
WAYS_OUT: Mapping[str, str] = {
    "AccessDenied": "Add the action to the policy of Berth's role; docs/aws.md lists the policy.",
    "UnauthorizedOperation": "Add the action to the policy of Berth's role; see docs/aws.md.",
    "CertificateNotFound": "Import the certificate in this region, or name another one.",
    "UnsupportedCertificate": "Use a certificate that is issued and whose key AWS supports.",
    "InvalidTarget": "Use a backend in the VPC of the load balancer.",
    "TooManyListeners": "A network load balancer has 50 listeners; AWS does not raise this quota.",
    "TooManyLoadBalancers": "Ask AWS to raise the quota, or lower members.max of the pool.",
    "TooManyTargetGroups": "Ask AWS to raise the quota of target groups.",
    "InvalidSubnet": "Each subnet needs 8 free addresses for a new load balancer.",
    "OperationNotPermitted": "Turn off deletion protection of the load balancer.",
}


class CallRefused(ProviderError):
    """A refusal with a code that Berth does not know. Another call may succeed."""


class ServerFault(ProviderError):
    """AWS blames itself (5xx). `pools.providers.server_faults` tells one port from an outage."""

    def __init__(self, operation: str, message: str) -> None:
        self.operation = operation
        super().__init__(message)


class NotTried(ServerFault):
    """The call was not made, because it failed for other ports of this sync."""

    def __init__(self, operation: str) -> None:
        super().__init__(operation, f"AWS fails at {operation} for other ports.")


# Errors that other ports of the load balancer do not meet.
OF_ONE_PORT = (ConflictError, Misconfigured, QuotaExceeded, CallRefused, PermanentError)


def concerns_one_port(error: ProviderError) -> bool:
    """Whether an error of a call about one port is of this port alone. A throttled account, wrong
    credentials, a missing load balancer and an outside that does not answer concern all ports. A
    server error tells neither.
    """
    if isinstance(error, NotFoundOutside):
        return code_of(error) != NO_BALANCER
    if isinstance(error, Unauthorised):
        return code_of(error) in RIGHTS
    return isinstance(error, OF_ONE_PORT)


@contextmanager
def set_apart(failures: list[ProviderError]) -> Iterator[None]:
    """Errors of one port join the failures; others are raised."""
    try:
        yield
    except ProviderError as error:
        if not concerns_one_port(error):
            raise
        failures.append(error)


def translate(error: Exception, operation: str) -> ProviderError:
    """The typed error for an error of botocore. The caller raises it `from error`."""
    name = type(error).__name__
    if code := read_code(error):
        kind = TYPES.get(code) or _kind_of_status(error)
        reason = str(_read_details(error).get("Message") or "no reason given").strip().rstrip(".")
        if kind is ServerFault:
            return ServerFault(operation, f"AWS fails at {operation} ({code}): {reason}.")
        text = f"AWS refuses {operation} ({code}): {reason}. {WAYS_OUT.get(code, '')}"
        return kind(text.strip())
    if name in CREDENTIALS:
        return Unauthorised(
            f"Berth has no usable credentials for AWS: {error}. Give its workers a role (IRSA), or "
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for them."
        )
    if name == "ParamValidationError":
        return PermanentError(f"A parameter of {operation} is invalid: {error}")
    return ProviderError(f"AWS does not answer {operation}: {error}")


def read_code(error: BaseException | None) -> str:
    """The code of an answer of AWS; empty for every other error."""
    return str(_read_details(error).get("Code", ""))


def _read_details(error: BaseException | None, part: str = "Error") -> Mapping[str, object]:
    response: object = getattr(error, "response", None)
    found: object = response.get(part) if isinstance(response, dict) else None
    return found if isinstance(found, dict) else {}


def _kind_of_status(error: BaseException) -> type[ProviderError]:
    """By the HTTP status: whether AWS blames the call or itself."""
    status = _read_details(error, "ResponseMetadata").get("HTTPStatusCode", 0)
    if not isinstance(status, int) or status < 400:
        return ProviderError
    return CallRefused if status < 500 else ServerFault


def code_of(error: ProviderError) -> str:
    return read_code(error.__cause__)
