"""How long a session may last: until it was idle for too long, and never beyond its life however
busy it was.
"""

import time
from typing import Any

from django.conf import settings

SINCE, SEEN = "since", "seen"  # of a session: when the person signed in, when last heard of


def record_sign_in(sender: object, request: Any, **kwargs: object) -> None:
    """Receives `user_logged_in`; a session kept over a second sign-in begins anew."""
    request.session[SINCE] = request.session[SEEN] = int(time.time())


def is_over(session: Any, now: float) -> bool:
    """Also for a WebSocket, which looks again while it stays open. A session that says neither
    is not of our making.
    """
    since, seen = session.get(SINCE), session.get(SEEN)
    if since is None or seen is None:
        return True
    return bool(
        now - since > settings.BERTH_SESSION_LIFE or now - seen > settings.BERTH_SESSION_IDLE
    )


def record_activity(session: Any, now: float) -> None:
    """A few times an hour, not with each request: sessions are rows."""
    if now - session[SEEN] > settings.BERTH_SESSION_IDLE / 20:
        session[SEEN] = int(now)
