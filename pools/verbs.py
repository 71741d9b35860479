"""Event verbs of pools, roles, tokens and secrets."""

from project.kernel.events.verbs import register

register("pool", "create", "created", "creating")
register("pool", "configure", "configured", "ready")
register("secret", "set_secret", "secret set", "ready")
register("secret", "delete_secret", "secret deleted", "ready")
register("access", "grant", "role granted", "ready", is_private=True, changes_access=True)
register("access", "ungrant", "role withdrawn", "ready", is_private=True, changes_access=True)
register("access", "create_token", "token created", "ready", is_private=True)
register("access", "revoke_token", "token revoked", "ready", is_private=True, changes_access=True)
