"""Guessing a password is slow: per account, so that one password cannot be searched for, and per
address, so that one host cannot try a common password on every account.

Attempts are counted in the database, because there are several web processes. An attempt is counted
before the password is looked at, in one statement that refuses while a wait lasts: a hundred
guesses at once are no way around it. Nobody is locked out: who knows the password waits a minute at
most on their account.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from project.kernel.db.sql import run

from .client_address import counted_address


@dataclass(frozen=True, slots=True)
class ThrottlePace:
    free: int  # attempts without a wait
    longest: int  # seconds; the wait doubles from one second up to this


ACCOUNT = ThrottlePace(free=5, longest=60)
ADDRESS = ThrottlePace(free=20, longest=900)

# Attempts of more than an hour ago are forgotten.
COUNT = """
INSERT INTO kernel_sign_in_attempt AS a (key, free, longest)
SELECT * FROM unnest(%(keys)s::text[], %(free)s::int[], %(longest)s::int[]) ORDER BY 1
ON CONFLICT (key) DO UPDATE SET
    attempts = CASE WHEN a.last_at < now() - interval '1 hour' THEN 1 ELSE a.attempts + 1 END,
    last_at = now(),
    wait_until = CASE WHEN a.last_at < now() - interval '1 hour' OR a.attempts < a.free THEN now()
        ELSE now() + interval '1 second' * least(a.longest,
          2.0 ^ least(a.attempts - a.free, 20)) END
WHERE a.wait_until <= now()
RETURNING key
"""
WAIT = (
    "SELECT ceil(extract(epoch FROM max(wait_until) - now()))::int AS seconds "
    "FROM kernel_sign_in_attempt WHERE key = ANY (%(keys)s)"
)
# A right password takes its own attempt back from the address, which may be that of a whole office.
FORGET = """
WITH gone AS (DELETE FROM kernel_sign_in_attempt
  WHERE key = %(account)s OR last_at < now() - interval '1 day')
UPDATE kernel_sign_in_attempt SET attempts = greatest(attempts - 1, 0)
  WHERE key = ANY (%(keys)s) AND key <> %(account)s
"""


def count_attempt(keys: dict[str, ThrottlePace]) -> int:
    """Seconds to wait before the next attempt is looked at; 0: this one may go on."""
    values = {
        "keys": list(keys),
        "free": [pace.free for pace in keys.values()],
        "longest": [pace.longest for pace in keys.values()],
    }
    if len(run(COUNT, values)) == len(keys):
        return 0
    return max(1, run(WAIT, {"keys": list(keys)})[0].seconds or 1)


def key_of(kind: str, value: str) -> str:
    """Hashed: people type their password where the name belongs."""
    return f"{kind}:{sha256(value.strip().casefold().encode()).hexdigest()[:40]}"


class SlowedBackend(ModelBackend):
    """Counts per account, and per client address as trusted proxies tell it; an IPv6 address
    counts with its /64.
    """

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> User | None:
        if username is None or password is None:
            return None
        account = key_of("account", username)
        keys = {account: ACCOUNT}
        if request is not None and (
            address := counted_address(request.META.get("REMOTE_ADDR", ""))
        ):
            keys[key_of("address", address)] = ADDRESS
        if wait := count_attempt(keys):
            if request is not None:
                # The sign-in page says it.
                request.sign_in_wait = wait  # type: ignore[attr-defined]
            raise PermissionDenied
        # No account has such a name, and the database refuses to look for it.
        if "\x00" in username:
            return None
        user = super().authenticate(request, username, password, **kwargs)
        if user is not None:
            run(FORGET, {"account": account, "keys": list(keys)})
        return user
