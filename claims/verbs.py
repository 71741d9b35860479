"""What claims write into the event log: claims, the scaler and workspaces."""

from functools import partial

from project.kernel.events.verbs import register

of_claim, of_pool = partial(register, "claim"), partial(register, "pool")
of_workspace = partial(register, "workspace")

of_claim("create", "created")  # the line says what became of it at once
of_claim("bind", "bound to", "bound")
of_claim("acknowledge", "acknowledged", is_routine=True)  # every claim has one
of_claim("prioritise", "prioritised", "waiting", is_override=True)
of_claim("promote", "next for its workspace", "waiting")
of_claim("block", "blocked", "waiting")
of_claim("unblock", "back in line", "waiting")
of_claim("adopt", "waits in its pool, which is there now")
of_claim("disown", "its pool is gone")
of_claim("shrink", "gave back")
of_claim("move", "moved to", is_override=True)
of_claim("leave", "left")
of_claim("put_out", "put out of", "lost")

of_claim("release", "released", "done")
of_claim("force_release", "released by force", "lost", is_override=True)
of_claim("cancel", "cancelled", "cancelled", is_override=True)
of_claim("expire", "expired", "expired", is_problem=True)
of_claim("lose", "lost", "lost", is_problem=True)
of_claim("unacknowledged", "not acknowledged in time", "unacknowledged", is_problem=True)
of_claim("silent", "ended, its holder was silent", "unacknowledged", is_problem=True)
of_claim("late_acknowledge", "was acknowledged too late, which changes nothing")
of_claim("late_release", "was released too late, which changes nothing")
of_claim("late_resize", "was resized too late, which changes nothing")

of_claim("start", "started on", "running")
of_claim("interrupt", "was interrupted on", "cancelled")
of_claim("finish", "finished", "done")
of_claim("applied", "applied", "done")
of_claim("failed", "failed", "failed", is_problem=True)
of_claim("log_limit", "prints more than is kept", "ready")
of_claim("stale_report", "reported too late, which changes nothing", "outdated")
of_claim("refused_agent", "was reported on by an agent that was refused", "failed", is_problem=True)

of_claim("plan", "has a plan", "done")
of_claim("reserve", "waits for a decision in")
of_claim("reserve_again", "has a slot again in")
of_claim("park", "waits for a decision without a slot", is_override=True)
of_claim("approval", "approved", "apply_pending", is_override=True)
of_claim("approve", "approved", "applying", is_override=True)
of_claim("reject", "rejected", "rejected", is_override=True)
of_claim(
    "unapprove",
    "lacks an approval that counts, and waits for a decision again",
    "apply_pending",
)
of_claim("extend", "waits longer", "apply_pending", is_override=True)
of_claim("expire_soon", "expires soon", "expired")
of_claim("plan_again", "plans again", is_override=True)

of_claim("apply_lost", "lost its apply", "lost", is_problem=True)
of_claim("settle", "lost its apply, which is settled", "done", is_override=True)
of_claim(
    "state_rescued", "left a Terraform state that only its agent has, on", "lost", is_problem=True
)
of_claim("state_kept", "has a rescued Terraform state, kept sealed", "done")
of_claim("state_lost", "has lost its rescued Terraform state", "lost", is_problem=True)
of_claim("state_download", "had its rescued Terraform state downloaded", "ready", is_override=True)
of_claim("state_discard", "had its rescued Terraform state discarded", "done", is_override=True)

of_pool("scale", "is scaled", "ready")
of_pool("pin", "is pinned", "ready")
of_pool("unpin", "follows its policy again", "ready")
of_pool("pause_scaling", "is left alone by the scaler", "paused")
of_pool("resume_scaling", "is scaled again", "active")
of_pool("freeze", "is frozen", "frozen")
of_pool("thaw", "is frozen no more", "active")
of_pool("unfreeze", "has its freeze lifted, once", "active")
of_pool("lift_ahead", "has a freeze to come lifted, once", "active")
of_pool("refreeze", "has a lifted freeze again", "frozen")
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
