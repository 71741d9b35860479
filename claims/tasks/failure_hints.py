"""Advice for a failed task, by the error code that its agent reports."""

AGAIN = "then run again"
WAYS_OUT = {
    "command_not_found": (
        "Use a program that the agents have, or one of the source (./plan.sh, "
        f"executable); {AGAIN}."
    ),
    "exit_code": f"The end of the log shows why the command failed. Fix the cause, {AGAIN}.",
    "init_failed": f"The log shows what could not be fetched or set up. Fix the cause, {AGAIN}.",
    "no_backend": (
        f"Name a backend in the module, {AGAIN}. If its state is not needed, set state: "
        "discard in the run."
    ),
    "has_backend": (
        "Remove state: discard from the run, because the backend of the module keeps the "
        f"state; {AGAIN}."
    ),
    "stale_plan": "Run again: the new plan uses the current state and needs a new approval.",
    "state_locked": (
        "Wait until the lock of the state is released, or remove a stale lock "
        f"(force-unlock); {AGAIN}."
    ),
    "provider_crash": (
        f"The log shows where the Terraform provider crashed. Try another version, {AGAIN}."
    ),
    "not_json": (
        "Write only the output of show -json to $BERTH_PLAN_JSON, and other output to the log; or "
        "leave the file empty: the JSON is optional."
    ),
    "plan_too_large": "Split the workspace, or ask an admin to raise the pool’s task.plan.",
    "timeout": (
        "The end of the log shows the last step. If the task needs more time, raise the time "
        "limit, up to the pool’s task.timeout."
    ),
    "killed": (
        "Check what killed it on the agent’s machine; the CPU time limit (task.cpu) also kills "
        "tasks. Then run again."
    ),
    "out_of_memory": (
        f"Split the workspace, or ask an admin to raise the pool’s task.memory; {AGAIN}."
    ),
    "disk_full": f"Free disk space on the agent’s machine, {AGAIN}.",
    "source_failed": (
        "Check that the agents can reach and read the address (secrets GIT_USERNAME and "
        f"GIT_PASSWORD); {AGAIN}."
    ),
    "source_refused": (
        "Give a source within the limits: plain paths, no links that lead out, a git host that "
        "the pool allows."
    ),
    "git_ref_gone": "Use a branch, tag or commit that exists.",
    "secret_missing": "Ask an admin of the pool to set the secret, or remove it from the run.",
    "state_not_saved": (
        "Repair the backend, push the rescued state to it (an approver can download it on this "
        "page), then record the outcome on the workspace’s page."
    ),
}


def way_out(code: str) -> str:
    return WAYS_OUT.get(code, "")
