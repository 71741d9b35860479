"""What pools do when the kernel tells something."""

from typing import Any

from django.contrib.auth.models import User
from django.dispatch import receiver

from pools.access.permissions import APPROVER
from pools.roles.services import create_grant
from project.kernel.signals import first_user_made


@receiver(first_user_made, dispatch_uid="pools.first_user")
def make_first_user_approver(user: User, **kwargs: Any) -> None:
    """An admin does not decide about plans by that alone, and the first user has nobody
    else to ask.
    """
    create_grant(role=APPROVER, user=user, reason="the first user")
