"""The version of the agent: equal for the repository and the one-file agent, different after any
change of the code.
"""

from __future__ import annotations

import functools
import hashlib
import pkgutil

NUMBER = "0.1.0"
MODULES = (
    "__init__",
    "__main__",
    "cli",
    "common/__init__",
    "common/errors",
    "common/json_types",
    "common/log",
    "common/state",
    "earlier_runs",
    "executors/__init__",
    "executors/backend",
    "executors/command",
    "executors/git",
    "executors/hcl",
    "executors/job",
    "executors/kept_plan",
    "executors/outcome",
    "executors/plan_json",
    "executors/plan_summary",
    "executors/progress",
    "executors/redaction",
    "executors/sensitive",
    "executors/sources",
    "executors/state_rescue",
    "executors/terraform",
    "interrupted",
    "logs/__init__",
    "logs/log_buffer",
    "logs/log_upload",
    "logs/masking",
    "loop",
    "poller",
    "processes/__init__",
    "processes/init",
    "processes/isolation",
    "processes/launcher",
    "processes/namespaces",
    "processes/process_table",
    "processes/program",
    "processes/reaper",
    "processes/users",
    "reaper",
    "reporting",
    "run_folders",
    "runner",
    "server/__init__",
    "server/channel",
    "server/client",
    "server/protocol",
    "shown",
    "state_upload",
    "stopped_slots",
    "version",
    "workdir/__init__",
    "workdir/archive",
    "workdir/environment",
    "workdir/folders",
    "workdir/tar_headers",
)


@functools.lru_cache(maxsize=None)
def name_version() -> str:
    digest = hashlib.sha256()
    for name in MODULES:
        digest.update(
            name.encode() + b"\0" + (pkgutil.get_data(__package__, f"{name}.py") or b"") + b"\0"
        )
    return f"{NUMBER}+{digest.hexdigest()[:12]}"
