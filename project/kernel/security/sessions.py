"""The end of a session: after BERTH_SESSION_IDLE without a request, and at the latest after
BERTH_SESSION_LIFE.
"""

import time

from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest

SINCE, SEEN = "since", "seen"  # times in a session: sign-in and last recorded activity


def record_sign_in(sender: object, request: HttpRequest, **kwargs: object) -> None:
    """Receiver of `user_logged_in`. A second sign-in restarts the times of the session."""
    request.session[SINCE] = request.session[SEEN] = int(time.time())


def is_over(session: SessionBase, now: float) -> bool:
    """True for an expired session, and for a session without times, which Berth did not create. An
    open WebSocket checks its session repeatedly.
    """
    since, seen = session.get(SINCE), session.get(SEEN)
    if since is None or seen is None:
        return True
    return bool(
        now - since > settings.BERTH_SESSION_LIFE or now - seen > settings.BERTH_SESSION_IDLE
    )


def record_activity(session: SessionBase, now: float) -> None:
    """Records the time, but not with each request, because a session is a row."""
    if now - session[SEEN] > settings.BERTH_SESSION_IDLE / 20:
        session[SEEN] = int(now)
