"""The event verbs of claims, of the scaler and of workspaces."""

from functools import partial

from project.kernel.events.verbs import register

of_claim, of_pool = partial(register, "claim"), partial(register, "pool")
of_workspace = partial(register, "workspace")

of_claim("create", "created")  # the sentence shows the first state instead
of_claim("bind", "bound to", "bound")
of_claim("acknowledge", "acknowledged", is_routine=True)  # one for nearly every claim
of_claim("prioritise", "prioritised", "waiting", is_override=True)
of_claim("promote", "is next in its workspace", "waiting")
of_claim("block", "blocked", "waiting")
of_claim("unblock", "queued again", "waiting")
of_claim("adopt", "waits in its pool, which was created")
of_claim("disown", "waits for a pool, as its pool is gone")
of_claim("set_backend", "has a backend", "ready")
of_claim("drop_backend", "has no backend any more", "ready")
of_claim("free_backend", "has its backend for itself", "ready")
of_claim("late_set_backend", "got a backend too late, without effect")
of_claim("observe", "has a listener that changed", "ready", is_routine=True)
of_claim("shrink", "shrank and left")
of_claim("move", "moved to", is_override=True)
of_claim("leave", "left")
of_claim("readdress", "has new addresses", "ready")
of_claim("put_out", "evicted from", "lost")

of_claim("release", "released", "done")
of_claim("force_release", "released by force", "lost", is_override=True)
of_claim("cancel", "cancelled", "cancelled", is_override=True)
of_claim("expire", "expired", "expired", is_problem=True)
of_claim("lose", "lost", "lost", is_problem=True)
of_claim("unacknowledged", "not acknowledged in time", "unacknowledged", is_problem=True)
of_claim("silent", "ended without a heartbeat from its holder", "unacknowledged", is_problem=True)
of_claim("late_acknowledge", "was acknowledged too late, without effect")
of_claim("late_release", "was released too late, without effect")
of_claim("late_resize", "was resized too late, without effect")

of_claim("start", "started on", "running")
of_claim("interrupt", "was interrupted on", "cancelled")
of_claim("finish", "finished", "done")
of_claim("applied", "applied", "done")
of_claim("failed", "failed", "failed", is_problem=True)
of_claim("log_limit", "exceeded the size limit of its log", "ready")
of_claim("stale_report", "was reported on too late, without effect", "outdated")
of_claim("refused_agent", "got a report that was rejected", "failed", is_problem=True)

of_claim("plan", "finished its plan", "done")
of_claim("reserve", "waits for an approval in")
of_claim("reserve_again", "waits for an approval again in")
of_claim("park", "waits for an approval without a slot", is_override=True)
of_claim("approval", "approved", "apply_pending", is_override=True)
of_claim("approve", "approved", "applying", is_override=True)
of_claim("reject", "rejected", "rejected", is_override=True)
of_claim(
    "unapprove",
    "lacks a valid approval and waits for one again",
    "apply_pending",
)
of_claim("extend", "has a later deadline", "apply_pending", is_override=True)
of_claim("expire_soon", "expires soon", "expired")
of_claim("plan_again", "plans again", is_override=True)

of_claim("apply_lost", "has a lost apply", "lost", is_problem=True)
of_claim("settle", "has the outcome of its lost apply recorded", "done", is_override=True)
of_claim("state_rescued", "left an unsaved Terraform state on", "lost", is_problem=True)
of_claim("state_kept", "has a rescued Terraform state, stored encrypted", "done")
of_claim("state_lost", "has lost its rescued Terraform state", "lost", is_problem=True)
of_claim("state_download", "had its rescued Terraform state downloaded", "ready", is_override=True)
of_claim("state_discard", "had its rescued Terraform state discarded", "done", is_override=True)

of_pool("scale", "is scaled", "ready")
of_pool("pin", "is pinned", "ready")
of_pool("unpin", "follows its policy again", "ready")
of_pool("pause_scaling", "has its scaler paused", "paused")
of_pool("resume_scaling", "has its scaler resumed", "active")
of_pool("freeze", "is frozen", "frozen")
of_pool("thaw", "is no longer frozen", "active")
of_pool("unfreeze", "has its freeze lifted", "active")
of_pool("lift_ahead", "has a future freeze lifted", "active")
of_pool("refreeze", "has a lifted freeze restored", "frozen")
of_pool("roll", "renews outdated members", "outdated")
of_pool("pause_roll", "has its roll paused", "paused")
of_pool("resume_roll", "has its roll resumed", "active")
of_pool("stop_roll", "has its roll stopped", "failed")

of_workspace("lock", "workspace locked")
of_workspace("unlock", "workspace unlocked")
of_workspace("share", "workspace shared with another pool")
of_workspace("unshare", "workspace no longer shared with another pool")

for subject in ("claim", "installation"):  # by the doctor
    register(subject, "repair", "repaired")
