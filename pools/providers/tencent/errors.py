"""Error codes of the CLB API as typed errors. Pure.

The types decide when Berth retries. The types of this module also tell the reconciliation whether
one item of a call is at fault, or the whole call.
"""

from project.kernel.outbox.operations import (
    ConflictError,
    Misconfigured,
    NotFoundOutside,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Unauthorised,
)

RETRY_AFTER = 1.0  # seconds: the limits of the API count calls a second
# The cloud refuses more than 30 deletions of load balancers in five minutes.
DELETIONS_RETRY_AFTER = 300.0


class NoAnswer(ProviderError):
    """The call may have had its effect."""


class InternalFault(NoAnswer):
    """Tencent Cloud blames itself. `pools.providers.server_faults` tells one port from an outage.
    The call may have had its effect.
    """


class LoadBalancerBusy(ConflictError):
    """Another write runs on the load balancer, which takes one at a time."""


class PortTaken(ConflictError):
    """A listener already uses one of the ports."""


class LoadBalancerMissing(NotFoundOutside):
    pass


class ListenerMissing(NotFoundOutside):
    pass


class RequestRejected(Misconfigured):
    """A parameter is wrong, so an equal call fails again."""


# The longest prefix of a code wins.
TYPES: dict[str, type[ProviderError]] = {
    "AuthFailure": Unauthorised,
    "UnauthorizedOperation": Unauthorised,
    "FailedOperation.InvalidApiKey": Unauthorised,
    "RequestLimitExceeded": Throttled,
    "FailedOperation.RateLimitExceeded": Throttled,
    "FailedOperation.FrequencyCheckRisk": Throttled,
    "LimitExceeded": QuotaExceeded,
    "ResourceInsufficient": QuotaExceeded,
    "ResourcesSoldOut": QuotaExceeded,
    "InsufficientBalance": QuotaExceeded,
    "FailedOperation.InsufficientBalance": QuotaExceeded,
    "FailedOperation.ResourceInOperating": LoadBalancerBusy,
    "FailedOperation.ResourceInCloning": LoadBalancerBusy,
    "FailedOperation.InvalidLBStatus": LoadBalancerBusy,
    "FailedOperation.TargetNumCheckRisk": ConflictError,
    "FailedOperation.TrafficCheckRisk": ConflictError,
    "ResourceInUse": ConflictError,
    "InvalidParameter.LBIdNotFound": LoadBalancerMissing,
    "InvalidParameter.ListenerIdNotFound": ListenerMissing,
    "InvalidParameter.PortCheckFailed": PortTaken,
    "InvalidParameterValue.Duplicate": PortTaken,
    "InvalidParameter": RequestRejected,
    "MissingParameter": RequestRejected,
    "OperationDenied": RequestRejected,
    "ResourceNotFound": RequestRejected,
    "UnknownParameter": RequestRejected,
    "Unsupported": RequestRejected,
    "InternalError": InternalFault,
    "ClientNetworkError": NoAnswer,
    "ServerNetworkError": NoAnswer,
    "FailedOperation.RequestTimeout": NoAnswer,
}
WAYS_OUT: dict[type[ProviderError], str] = {
    Unauthorised: "Give Berth's account the policy in docs/tencent.md.",
    NoAnswer: "Berth tries again.",
    InternalFault: "Berth tries again.",
}


def error_of(action: str, region: str, code: str, message: str) -> ProviderError:
    """The typed error of a code, with a sentence for people. Equal faults have equal sentences,
    because a new sentence on a slot is an event.
    """
    prefix = max((each for each in TYPES if code.startswith(each)), key=len, default="")
    kind = TYPES.get(prefix, ProviderError)
    text = " ".join(message.split()).rstrip(".") or "no reason given"
    way_out = WAYS_OUT.get(kind, "")
    sentence = f"{action} failed in {region}: {text} ({code}). {way_out}".rstrip()
    if kind is not Throttled:
        return kind(sentence)
    is_slow = prefix == "FailedOperation.FrequencyCheckRisk"
    return kind(sentence, retry_after=DELETIONS_RETRY_AFTER if is_slow else RETRY_AFTER)
