"""What a person can do about a task that failed, by the kind that its agent names."""

AGAIN = "then run it anew"
WAYS_OUT = {
    "command_not_found": (
        "Name a program that the agents have, or one of the source (./plan.sh, "
        f"executable); {AGAIN}."
    ),
    "exit_code": f"The end of the log says what the command did not like. Mend that, {AGAIN}.",
    "init_failed": f"The log says what could not be fetched or set up. Mend that, {AGAIN}.",
    "no_backend": (
        f"Name a backend in the module, {AGAIN}. If nothing of its state is needed: state: "
        "discard in the run."
    ),
    "has_backend": (
        f"Leave state: discard out of the run: the backend of the module keeps the state; {AGAIN}."
    ),
    "stale_plan": "Run it anew: it is planned against the present state, and approved again.",
    "state_locked": (
        "Wait until who has the lock of the state is done, or remove a lock that was left "
        f"(force-unlock); {AGAIN}."
    ),
    "provider_crash": (
        f"The log shows where the provider broke. Try another version of it, {AGAIN}."
    ),
    "not_json": (
        "Write what show -json prints to $BERTH_PLAN_JSON, and all else to the log; or write "
        "nothing there: the JSON is optional."
    ),
    "plan_too_large": "Plan less in one workspace, or have task.plan of the pool raised.",
    "timeout": (
        "The end of the log shows where it stood. If it needs longer: a longer time limit, up to "
        "task.timeout of the pool."
    ),
    "killed": (
        "Look who ended it on the agent’s machine; a limit of CPU time (task.cpu) does, too. "
        "Then run it anew."
    ),
    "out_of_memory": (
        f"Plan less in one workspace, or have task.memory of the pool raised; {AGAIN}."
    ),
    "disk_full": f"Make room where the agent works, {AGAIN}.",
    "source_failed": (
        "See that the agents reach the address, and may read it (secrets GIT_USERNAME and "
        f"GIT_PASSWORD); {AGAIN}."
    ),
    "source_refused": (
        "Give a source within the limits: plain paths, no links that lead out, a git host that "
        "the pool allows."
    ),
    "git_ref_gone": "Name a branch, a tag or a commit that is there.",
    "secret_missing": "An admin of the pool sets the secret; or run it without naming it.",
    "state_not_saved": (
        "Mend the backend, push the rescued state to it (an approver downloads it on this page), "
        "then settle the workspace."
    ),
}


def way_out(code: str) -> str:
    return WAYS_OUT.get(code, "")
