"""Notify the requester of a plan that its deadline is near: once, with an event and, if a mail
server is set, by mail.

The mail is an operation of the outbox: the transaction of the event writes it, and a worker sends
it after the commit and retries while the server is unavailable.
"""

from smtplib import SMTPException

from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import send_mail

from claims.lifecycle import tasks_sql
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
    """Record the notice in the transaction of the finalizer. False: the notice was recorded
    before, or the plan no longer waits.
    """
    row = tasks_sql.notify(claim=claim_id)
    if row is None:
        return False
    until = {"expires_at": rfc3339(row.expires_at)}
    record(
        "expire_soon", pool_id=row.pool_id, claim_id=row.id, generation=row.generation,
        before=row.state, after=row.state,
        reason=f"not approved or rejected yet; ends at {row.expires_at:%Y-%m-%d %H:%M} UTC",
        data=until,
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
    """Mail the requester, unless the plan was approved or rejected meanwhile."""
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
        raise ProviderError(f"The mail server did not accept the mail: {error}") from error
