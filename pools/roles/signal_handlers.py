"""Handlers for signals of the kernel."""

from django.contrib.auth.models import User
from django.dispatch import receiver

from pools.access.permissions import APPROVER
from pools.roles.services import create_grant
from project.kernel.signals import first_user_made


@receiver(first_user_made, dispatch_uid="pools.first_user")
def make_first_user_approver(user: User, **kwargs: object) -> None:
    """Make the first user an approver, because the role admin does not include approvals and no
    other user could approve plans.
    """
    create_grant(role=APPROVER, user=user, reason="the first user")
