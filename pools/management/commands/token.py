"""manage.py token create USER NAME [--role ROLE ...] [--pool POOL ...] [--days N] | list [USER]
| revoke ID
"""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from pools.access.permissions import ROLES
from pools.access.tokens import create_token, list_tokens, revoke_token
from pools.models import Pool, Token
from project.kernel.actor import acting_as
from project.kernel.errors import BerthError


class Command(BaseCommand):
    help = "Create, list and revoke tokens of programs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        create = verbs.add_parser(
            "create", help="create a token and print it; it is shown only once"
        )
        create.add_argument("user")
        create.add_argument("name", help="name of the program, such as ci")
        create.add_argument(
            "--role",
            action="append",
            choices=list(ROLES),
            help="limit the token to this role (may be repeated; default: all roles of the user)",
        )
        create.add_argument(
            "--pool",
            action="append",
            metavar="POOL",
            help="limit the token to this pool (may be repeated; default: all pools)",
        )
        create.add_argument("--days", type=float, help="lifetime (default: no end)")
        listing = verbs.add_parser("list", help="list tokens, newest first")
        listing.add_argument("user", nargs="?")
        revoke = verbs.add_parser("revoke", help="revoke a token for good")
        revoke.add_argument("id", type=int)
        revoke.add_argument("--reason", default="")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        with acting_as("system"):
            try:
                {"create": self.create, "list": self.list, "revoke": self.revoke}[verb](options)
            except BerthError as error:
                lines = [
                    f"{fault.field}: {fault.message} {fault.way_out}".strip()
                    for fault in error.fields
                ]
                raise CommandError("\n".join(lines) or f"{error.detail} {error.way_out}".strip())

    def create(self, options: dict[str, Any]) -> None:
        pools = None
        if options["pool"]:
            pools = list(Pool.objects.filter(name__in=options["pool"]).exclude(state="gone"))
            if missing := sorted(set(options["pool"]) - {pool.name for pool in pools}):
                raise CommandError(f"There is no pool {', '.join(missing)}.")
        ends = None if options["days"] is None else timezone.now() + timedelta(days=options["days"])
        token, secret = create_token(
            user=self.find_user(options["user"]),
            name=options["name"],
            roles=options["role"],
            pools=pools,
            expires_at=ends,
        )
        self.stderr.write(
            f"Token {token.pk} of {options['user']}, {ends_at(token)}. It is shown only once:"
        )
        self.stdout.write(secret)  # alone on stdout, for scripts

    def list(self, options: dict[str, Any]) -> None:
        user = self.find_user(options["user"]) if options["user"] else None
        names = dict(Pool.objects.values_list("id", "name"))
        for token in list_tokens(user.pk if user else None):
            roles = ",".join(token.scopes.get("roles") or ["as its user"])
            pools = (
                ",".join(names.get(pool, f"#{pool}") for pool in token.scopes.get("pools") or [])
                or "all pools"
            )
            used = (
                f"used {token.last_used_at:%Y-%m-%d %H:%M}Z" if token.last_used_at else "never used"
            )
            self.stdout.write(
                f"{token.pk}\t{token.user}/{token.name}\t{token.prefix}"
                f"...\t{roles}\t{pools}\t{ends_at(token)}\t{used}"
            )

    def revoke(self, options: dict[str, Any]) -> None:
        token = revoke_token(options["id"], reason=options["reason"])
        self.stdout.write(f"Token {token.pk} ({token.user}/{token.name}) is revoked.")

    def find_user(self, name: str) -> User:
        user = User.objects.filter(username=name).first()
        if user is None:
            raise CommandError(f"There is no user {name}.")
        return user


def ends_at(token: Token) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return f"until {token.expires_at:%Y-%m-%d %H:%M}Z" if token.expires_at else "without an end"
