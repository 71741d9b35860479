"""Event verbs of members and slots, and of pools as far as slots change them."""

from functools import partial

from project.kernel.events.verbs import register

of_slot, of_member = partial(register, "slot"), partial(register, "member")
of_pool = partial(register, "pool")

of_slot("clean", "clean again", "idle")
of_slot("retire", "withdrawn", is_problem=True)
of_slot("offer", "offered again")

of_member("add", "added", "creating")
of_member("edit", "edited")
of_member("ready", "is ready")
of_member("cordon", "cordoned", "cordoned")
of_member("uncordon", "takes claims again", "ready")
of_member("remove", "leaves when it is empty", "draining")
of_member("keep", "stays after all", "ready")
of_member("drain", "drains", "draining")
of_member("force_drain", "is drained by force", "draining")
of_member("undrain", "takes claims again, its drain is taken back", "ready")
of_member("drained", "is drained and stays closed", "cordoned")
of_member("delete", "is being removed", "deleting")
of_member("gone", "has gone", "deleting")
of_member("offline", "is offline", "unhealthy", is_problem=True)
of_member("online", "is back", "ready")
of_member("lose", "is lost", "lost", is_problem=True)
of_member("down", "does not run", "unhealthy")  # also before an ordered restart
of_member("restart", "is started again", "creating")
of_member("give_up", "is not started again by itself", "lost", is_problem=True)
of_member("sync_fails", "can’t be made as it should be", "unhealthy", is_problem=True)
of_member("issue_token", "gets a token")
of_member("order_token", "is to get another token")
of_member("revoke_token", "has its tokens revoked", is_private=True, changes_access=True)
of_member("refused_agent", "has an agent that was refused", "failed", is_problem=True)

of_pool("activate", "is active")
of_pool("pause", "paused", "paused")
of_pool("resume", "resumed", "active")
of_pool("delete", "is being deleted", "deleting")
of_pool("gone", "has gone", "deleting")
of_pool("provider_fails", "has a provider that fails", "unhealthy", is_problem=True)
of_pool("provider_works", "has a provider that works again", "ready")
of_pool("confirm_place", "is where its provider looks now")
register("access", "refused_agent", "agent refused", "failed", is_problem=True)
