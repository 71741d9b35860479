"""Whoever asked for a plan is told that its deadline is near: once, in the log and, where a mail
server is set, by mail.

The mail is an operation: written with the event, sent after the commit by a worker, tried again
while the server is away.
"""

from smtplib import SMTPException

from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import send_mail

from claims.allocation import decisions_sql
from claims.models import Claim
from claims.states import PENDING
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.outbox.operations import (
    AcquiredOperation,
    ProviderError,
    add_operation,
    register_performer,
)
from project.kernel.ui.formatting import rfc3339

KIND = "mail_notice"


def notify_deadline(claim_id: int) -> bool:
    """In the transaction of the finalizer. False: it was told, or does not wait any more."""
    row = decisions_sql.notify(claim=claim_id)
    if row is None:
        return False
    until = {"expires_at": rfc3339(row.expires_at)}
    record(
        "expire_soon", pool_id=row.pool_id, claim_id=row.id, generation=row.generation,
        before=row.state, after=row.state,
        reason=f"nobody has decided; it ends at {row.expires_at:%Y-%m-%d %H:%M} UTC", data=until,
    )  # fmt: skip
    if settings.BERTH_MAIL:
        add_operation(
            lane=f"mail:{row.requested_by}",
            kind=KIND,
            pool_id=row.pool_id,
            claim_id=row.id,
            body=until,
        )
    publish("events")
    return True


@register_performer(KIND)
def send_notice(taken: AcquiredOperation) -> None:
    """What was decided meanwhile is no news."""
    claim = (
        Claim.objects.select_related("pool", "workspace")
        .filter(pk=taken.claim_id or 0, state__in=PENDING)
        .first()
    )
    if claim is None:
        return
    user = (
        User.objects.filter(username=claim.requested_by, is_active=True).exclude(email="").first()
    )
    if user is None:
        return
    name = claim.workspace.name if claim.workspace else f"claim {claim.pk}"
    text = (
        f"The plan of {name} waits for an approval until {claim.expires_at:%Y-%m-%d %H:%M} UTC.\n"
        "Without a decision by then the claim ends, and nothing is applied.\n\n"
        f"{settings.BERTH_URL}/claims/{claim.pk}/\n"
    )
    try:
        send_mail(f"{name} waits for an approval", text, None, [user.email])
    except (SMTPException, OSError) as error:
        raise ProviderError(f"The mail server did not accept it: {error}") from error
