"""Event verbs of members and slots, and of pools as far as slots change them."""

from functools import partial

from project.kernel.events.verbs import register

of_slot, of_member = partial(register, "slot"), partial(register, "member")
of_pool = partial(register, "pool")

of_slot("clean", "clean again", "idle")
of_slot("retire", "withdrawn", is_problem=True)
of_slot("offer", "offered again")
of_slot("repair", "repaired", "ready")

of_member("add", "added", "creating")
of_member("edit", "edited")
of_member("ready", "is ready")
of_member("cordon", "cordoned", "cordoned")
of_member("uncordon", "takes claims again", "ready")
of_member("remove", "leaves when it is empty", "draining")
of_member("keep", "has its removal cancelled", "ready")
of_member("drain", "drains", "draining")
of_member("force_drain", "is drained by force", "draining")
of_member("undrain", "has its drain cancelled and takes claims again", "ready")
of_member("drained", "is drained and stays closed", "cordoned")
of_member("delete", "is being removed", "deleting")
of_member("gone", "has gone", "deleting")
of_member("offline", "is offline", "unhealthy", is_problem=True)
of_member("online", "is back", "ready")
of_member("lose", "is lost", "lost", is_problem=True)
of_member("down", "does not run", "unhealthy")  # also before an ordered restart
of_member("restart", "is started again", "creating")
of_member("give_up", "has its automatic restarts stopped", "lost", is_problem=True)
of_member("sync_fails", "failed to synchronise", "unhealthy", is_problem=True)
of_member("drift", "differs outside", "drift", is_problem=True)
of_member("drift_ends", "has fewer differences outside", "ready")
of_member("observe_slots", "was observed", is_routine=True)
of_member("issue_token", "gets a token")
of_member("order_token", "has a token rotation ordered")
of_member("revoke_token", "has its tokens revoked", is_private=True, changes_access=True)
of_member("refused_agent", "has its agent rejected", "failed", is_problem=True)

of_pool("activate", "is active")
of_pool("pause", "paused", "paused")
of_pool("resume", "resumed", "active")
of_pool("delete", "is being deleted", "deleting")
of_pool("gone", "has gone", "deleting")
of_pool("provider_fails", "has a provider that fails", "unhealthy", is_problem=True)
of_pool("provider_works", "has a provider that works again", "ready")
of_pool("sweep", "is observed now, as ordered", "ready")
of_pool("confirm_place", "has its provider location confirmed")
register("access", "refused_agent", "agent refused", "failed", is_problem=True)
