"""Limits the rate of sign-in attempts: per account against guessing its password, and per address
against trying a common password on every account.

The database counts attempts, because there are several web processes. One statement counts an
attempt before the password is checked, and refuses attempts during a wait, so simultaneous attempts
gain no advantage. No account is locked: the owner of an account waits at most a minute.
"""

from dataclasses import dataclass
from hashlib import sha256

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
# A correct password takes back its own attempt of the address, which a whole office may share.
FORGET = """
WITH gone AS (DELETE FROM kernel_sign_in_attempt
  WHERE key = %(account)s OR last_at < now() - interval '1 day')
UPDATE kernel_sign_in_attempt SET attempts = greatest(attempts - 1, 0)
  WHERE key = ANY (%(keys)s) AND key <> %(account)s
"""


def count_attempt(keys: dict[str, ThrottlePace]) -> int:
    """Counts an attempt. Returns 0 if it may proceed, else the seconds to wait."""
    values = {
        "keys": list(keys),
        "free": [pace.free for pace in keys.values()],
        "longest": [pace.longest for pace in keys.values()],
    }
    if len(run(COUNT, values)) == len(keys):
        return 0
    return max(1, run(WAIT, {"keys": list(keys)})[0].seconds or 1)


def key_of(kind: str, value: str) -> str:
    """A hash, because people sometimes type their password as the name."""
    return f"{kind}:{sha256(value.strip().casefold().encode()).hexdigest()[:40]}"


class SlowedBackend(ModelBackend):
    """Counts attempts per account and per client address (client_address.py)."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: object,
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
                # The sign-in page shows the wait.
                request.sign_in_wait = wait  # type: ignore[attr-defined]
            raise PermissionDenied
        # No account has such a name, and PostgreSQL refuses a NUL character.
        if "\x00" in username:
            return None
        user = super().authenticate(request, username, password, **kwargs)
        if user is not None:
            run(FORGET, {"account": account, "keys": list(keys)})
        return user
