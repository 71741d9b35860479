"""Check of a pool's configuration at its cluster: missing rights, and a dry run of the pod and the
Secret.

A silent cluster or a used-up quota is no fault of the configuration.
"""

from pools.config.parsing import field_path
from pools.config.spec import turns_agents_off
from pools.providers.base import MemberSnapshot, PoolSnapshot
from pools.providers.kubernetes.field_errors import fields_of
from pools.providers.kubernetes.manifests import pod_manifest, secret_manifest
from project.kernel.errors import FieldError
from project.kernel.kubernetes.client import Api, api_for
from project.kernel.kubernetes.errors import ROLE, AlreadyExists, NamespaceGone
from project.kernel.outbox.operations import Misconfigured, ProviderError, Unauthorised

WHERE = "provider"
RIGHTS = {
    "pods": ("get", "list", "watch", "create", "delete"),
    "secrets": ("get", "create", "patch", "delete"),
}
# The member of the dry run, which Berth never creates.
EXAMPLE = MemberSnapshot(0, "dry-run", "creating", token="berthm_0_dry-run")  # noqa: S106


def check(pool: PoolSnapshot, url: str) -> list[FieldError]:
    try:
        api = api_for(pool.options)
    except Misconfigured as error:
        return [FieldError(field_path(WHERE, "context"), str(error))]
    try:
        api.check_namespace()
        if missing := _find_missing(api, needs_secrets=not turns_agents_off(pool.options)):
            what = f"Berth's account may not {', '.join(missing)} in {api.place}."
            return [FieldError(_where(pool), what, f"Give it the role in {ROLE}.")]
        if not turns_agents_off(pool.options):
            api.create_secret(secret_manifest(pool, EXAMPLE, api.namespace), is_dry=True)
        api.create_pod(pod_manifest(pool, EXAMPLE, api.namespace, url), is_dry=True)
    except AlreadyExists:
        return []
    except NamespaceGone as error:
        return [FieldError(field_path(WHERE, "namespace"), str(error))]
    except Unauthorised as error:
        return [FieldError(_where(pool), str(error))]
    except Misconfigured as error:
        return _explain(error, pool)
    except ProviderError:
        return []
    return []


def _find_missing(api: Api, *, needs_secrets: bool) -> list[str]:
    return [
        f"{verb} {resource}"
        for resource, verbs in RIGHTS.items()
        for verb in verbs
        if (needs_secrets or resource != "secrets") and api.may(verb, resource) is False
    ]


def _explain(error: Misconfigured, pool: PoolSnapshot) -> list[FieldError]:
    body = error.body
    if not body:
        return [FieldError(_where(pool), str(error))]
    if "being terminated" in str(body.get("message")):
        return [FieldError(field_path(WHERE, "namespace"), str(error))]
    return fields_of(body, field_path(WHERE, "template"))


def _where(pool: PoolSnapshot) -> str:
    return field_path(WHERE, "context" if pool.options.get("context") else "namespace")
