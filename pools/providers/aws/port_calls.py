"""Calls about listeners and target groups, and their parameters."""

from pools.providers.aws.account import Account
from pools.providers.aws.plan import WantedPort
from pools.providers.base import PortTarget
from project.kernel.outbox.operations import NotFoundOutside

SSL_POLICY = "ELBSecurityPolicy-TLS13-1-2-2021-06"


def delete_listener(account: Account, arn: str) -> None:
    try:
        account.call("DeleteListener", ListenerArn=arn)
    except NotFoundOutside:
        return  # that was the aim


def delete_group(account: Account, arn: str) -> None:
    try:
        account.call("DeleteTargetGroup", TargetGroupArn=arn)
    except NotFoundOutside:
        return


def forward_to(group: str) -> list[dict[str, str]]:
    return [{"Type": "forward", "TargetGroupArn": group}]


def write_certificate(want: WantedPort) -> dict[str, object]:
    if not want.certificate:
        return {}
    return {"Certificates": [{"CertificateArn": want.certificate}], "SslPolicy": SSL_POLICY}


def write_target(target: PortTarget) -> dict[str, object]:
    return {"Id": target.ip, "Port": target.port}


def write_tags(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": name, "Value": value} for name, value in tags.items()]
