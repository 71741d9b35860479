"""Pages to create and edit a pool, and to create and revoke tokens."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import yaml
from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from pools.access.permissions import ROLES, require
from pools.access.tokens import create_token, list_tokens, revoke_token
from pools.config.placement import DEFAULT_PLACEMENT
from pools.lifecycle.preflight import refuse_outside
from pools.lifecycle.provider_rights import require_provider
from pools.lifecycle.selectors import LIVE, config_of, list_pools, lock_pool, spec_of
from pools.lifecycle.services import create_pool, update_pool
from pools.models import Member, Pool, Token
from pools.pages import forms
from pools.pages.base import PageRequest, confirm, page, pool_for, signed_in
from pools.pages.provider_form import read_provider
from pools.providers.base import list_allowed
from project.kernel.errors import (
    BerthError,
    Conflict,
    FieldError,
    Forbidden,
    NotFound,
    wrong_field,
)
from project.kernel.ui import formatting
from project.kernel.ui.confirm import ConfirmInput, Done, Field, Question
from project.kernel.yaml_text import load_yaml

SCOPES = (("", "all my roles"), *((role, f"{role}: {what}") for role, what in ROLES.items()))
FIRST_CALL = (  # %s: the address of this installation
    """python3 -c "from urllib.request import Request, urlopen; """
    """print(urlopen(Request('%s/api/v1/me/', headers={'Authorization': 'Bearer $TOKEN'})).read().decode())\""""  # noqa: E501
)
FIELD_OF = {"roles": "role", "pools": "pool", "expires_at": "lasts"}  # of the form, by an error's
LASTS = (("30", "30 days"), ("90", "90 days"), ("365", "1 year"), ("", "never"))


@signed_in
def new_pool(request: PageRequest) -> HttpResponse:
    require(request.identity, "configure", None)
    values = forms.values_of(
        {
            "name": request.GET.get("name", ""),
            "members": {"min": 0, "max": 10},
            "placement": DEFAULT_PLACEMENT,
            "slots": 4,
        }
    )
    return edit(request, None, values)


@signed_in
def edit_pool(request: PageRequest, name: str) -> HttpResponse:
    pool = pool_for(request.identity, name, "configure")
    return edit(
        request, pool, forms.values_of(config_of(pool, with_members=False), spec_of(pool).layout)
    )


def edit(request: PageRequest, pool: Pool | None, values: dict[str, str]) -> HttpResponse:
    errors: list[FieldError] = []
    status = 200
    if request.method == "POST":
        values = {key: value for key, value in request.POST.items() if isinstance(value, str)}
        try:
            saved = save(request, pool, values)
            return HttpResponseRedirect(reverse("pool", args=[saved.name]))
        except BerthError as error:
            errors = list(error.fields) or [FieldError("", error.detail, error.way_out)]
            status = (
                409 if isinstance(error, Conflict) else 403 if isinstance(error, Forbidden) else 422
            )
    return page(
        request,
        "pools/pool_form_page.html",
        "overview",
        status,
        **form_context(pool, values, errors),
    )


def form_context(
    pool: Pool | None, values: dict[str, str], errors: list[FieldError]
) -> dict[str, Any]:
    members = Member.objects.filter(LIVE, pool_id=pool.pk).count() if pool else 0
    form = values.get("form", "plain")
    provider = pool.provider if pool else values.get("provider", "")
    is_file = values.get("mode") == "file"
    fixed = ""
    if members:
        there = formatting.plural(members, "member")
        fixed = f"Fixed while the pool has {there}: another layout would move existing claims."
    return {
        "pool": pool,
        "values": values,
        "forms": forms.FORMS,
        "form": form,
        "is_file": is_file,
        "file": values.get("file", "") or (as_file(pool) if pool else EXAMPLE),
        "sections": forms.sections(
            values, errors, provider=pool.provider if pool else "", allowed=list_allowed()
        ),
        "slots": forms.slot_fields(values, errors),
        "fixed": fixed,
        "problems": errors
        if is_file
        else [
            e
            for e in errors
            if not forms.field_for(e, form, provider) or (fixed and e.field.startswith("slots"))
        ],
        "count": len(errors),
    }


def save(request: PageRequest, pool: Pool | None, values: dict[str, str]) -> Pool:
    reason = values.get("reason", "").strip()
    if values.get("mode") == "file":
        config = read_file(values.get("file", ""))
    else:
        config = forms.read_form(values, with_members=pool is None)
        if pool is not None:
            before = config_of(pool, with_members=False)
            config = forms.preserve_unshown(config, before) | {
                "name": pool.name,
                "provider": read_provider(pool.provider, values, before.get("provider")),
            }
            if "form" not in values:  # the layout is disabled while the pool has members
                config["slots"] = before["slots"]
    if pool is not None:
        require_provider(request.identity, pool, config)
    refuse_outside(config)
    if pool is None:
        made = create_pool(config, reason=reason)
        messages.success(request, f"Pool {made.name} was created.")
        return made
    revision = forms.number_of(values.get("revision", ""))
    with transaction.atomic():
        require_provider(request.identity, lock_pool(pool.pk), config)
        changed = update_pool(
            pool.name,
            config,
            revision=revision if isinstance(revision, int) else None,
            reason=reason,
        )
    is_same = changed.revision == pool.revision
    what = "is unchanged" if is_same else f"was changed, revision {changed.revision}"
    messages.success(request, f"Pool {pool.name} {what}.")
    return changed


EXAMPLE = """kind: Pool
name: env-test
slots: 4
members:
  max: 10
  list:
    - {name: env-1, labels: {zone: eu-1}}
"""


def as_file(pool: Pool) -> str:
    return yaml.safe_dump(
        config_of(pool), sort_keys=False, allow_unicode=True, width=90, default_flow_style=None
    )


def read_file(text: str) -> dict[str, Any]:
    try:
        config = load_yaml(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise wrong_field(
            "",
            (
                f"The file is not valid YAML{where}: "
                f"{getattr(error, 'problem', '') or 'it cannot be read'}."
            ),
            "Correct the file, then save again.",
        )
    if not isinstance(config, dict):
        raise wrong_field(
            "", "The pool file must be a mapping.", "Begin with kind: Pool and name: …"
        )
    return config


# -- tokens ----------------------------------------------------------------------------------------


@signed_in
@sensitive_variables("secret")
def tokens(request: PageRequest) -> HttpResponse:
    identity = request.identity
    secret, errors, given = "", list[FieldError](), dict[str, str]()
    made = None
    if request.method == "POST":
        given = {name: request.POST.get(name, "") for name in ("name", "role", "pool", "lasts")}
        try:
            made, secret = make_token(request, given)
            given = {}
        except BerthError as error:
            errors = list(error.fields) or [FieldError("name", error.detail, error.way_out)]
    pools = list(list_pools(identity.visible_pools()))

    rights = "A token never has more rights than you have"
    choices = [("", "All pools"), *((str(p.pk), p.name) for p in pools)]
    fields = [
        replace(
            field,
            value=given.get(field.name, field.value),
            errors=tuple(e for e in errors if FIELD_OF.get(e.field, e.field) == field.name),
        )
        for field in (
            Field("name", "Name", help="Events show it after your user name: ana/ci"),
            Field("role", "Role", "select", "claimant", rights, SCOPES),
            Field("pool", "Pools", "select", options=choices),
            Field("lasts", "Lifetime", "select", "90", options=LASTS),
        )
    ]
    names = {p.pk: p.name for p in pools}
    rows = [(token, scope_words(token.scopes, names)) for token in list_tokens(identity.user_id)]
    return page(
        request,
        "pools/tokens_page.html",
        "tokens",
        422 if errors else 200,
        fields=fields,
        rows=rows,
        secret=secret,
        made=made,
        example=FIRST_CALL % request.build_absolute_uri("/").rstrip("/"),
    )


def make_token(request: PageRequest, given: dict[str, str]) -> tuple[Token, str]:
    visible = list_pools(request.identity.visible_pools())
    pools = [pool for pool in visible if str(pool.pk) == given["pool"]]
    if given["pool"] and not pools:  # a deleted pool must not turn into all pools
        raise wrong_field("pools", "The pool no longer exists.", "Choose another pool.")
    assert request.user.is_authenticated  # by signed_in
    return create_token(
        user=request.user,
        name=given["name"].strip(),
        roles=[given["role"]] if given["role"] else None,
        pools=pools or None,
        expires_at=timezone.now() + timedelta(days=int(given["lasts"]))
        if given["lasts"].isdecimal()
        else None,
    )


def scope_words(scopes: Mapping[str, Any], names: dict[int, str]) -> str:
    roles, pools = scopes.get("roles"), scopes.get("pools")
    what = "all your roles" if roles is None else ", ".join(roles)
    where = (
        "in all pools"
        if pools is None
        else "in " + ", ".join(names.get(int(p), "a deleted pool") for p in pools)
    )
    return f"{what}, {where}"


@signed_in
def revoke(request: PageRequest, token_id: int) -> HttpResponse:
    token = next((t for t in list_tokens(request.identity.user_id) if t.pk == token_id), None)
    if token is None:
        raise NotFound("You have no such token.")
    question = Question(
        title=f"Revoke {token.name}",
        verb="Revoke",
        intro=(
            "Calls with this token are rejected from now on. Slots that its claims hold stay held "
            "until they are released or expire."
        ),
        reason="optional",
        is_dangerous=True,
        note="Cannot be undone. Create a new token instead.",
        nothing="The token is already revoked." if token.revoked_at else "",
    )

    def perform(given: ConfirmInput) -> Done:
        revoke_token(token.pk, reason=given.reason)
        return Done(f"Token {token.name} was revoked.", reverse("tokens"))

    return confirm(request, question, perform, "tokens")
