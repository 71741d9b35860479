"""Fetches sources from git, by https and ssh and from hosts that the pool names. The commit
identifies a source.
"""

from __future__ import annotations

import re
import urllib.parse

from ..common.errors import TaskFailed
from .job import Job
from .outcome import strip_ansi

SCP = re.compile(r"(?:[A-Za-z0-9._-]+@)?([A-Za-z0-9.-]+):(?!//)[^\s]+\Z")
REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+@#=-]{0,254}\Z")
COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
PATH = re.compile(r"[^\0\\]{0,1000}\Z")
GONE = (
    "couldn't find remote ref",
    "not our ref",
    "unadvertised object",
    "did not match any file",
    "reference is not a tree",
    "unable to read tree",
    "bad object",
)
USUAL_PORTS = {"https": 443, "ssh": 22}
SSH = "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new -o ConnectTimeout=20"
# The helper reads the password from the environment, so that no command line contains it.
HELPER = (
    '!f() { test "$1" = get && test -n "$GIT_PASSWORD" && echo "username=${GIT_USERNAME:-git}" && '
    'echo "password=$GIT_PASSWORD"; }; f'
)
OPTIONS = (
    "core.hooksPath=/dev/null",
    "http.followRedirects=false",
    "protocol.allow=never",
    "protocol.https.allow=always",
    "protocol.ssh.allow=always",
)
ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "https:ssh",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
    "GIT_HTTP_LOW_SPEED_TIME": "60",
}


def check_url(url: str, hosts: tuple[str, ...]) -> None:
    if (
        any(character.isspace() or ord(character) < 32 for character in url)
        or len(url) > 2000
        or url.startswith("-")
    ):
        raise refused("is malformed")
    scp = SCP.match(url) if "://" not in url else None
    if scp:
        host = scp.group(1)
        if "::" in url:
            raise refused("names a helper program")
    else:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("https", "ssh"):
            raise refused("is neither https nor ssh")
        if parts.password or (parts.username and parts.scheme == "https"):
            raise refused(
                "contains a user or password: store them as the pool's secrets GIT_USERNAME "
                "and GIT_PASSWORD"
            )
        if (parts.username or "").startswith("-"):
            raise refused("is malformed")
        host = host_of(parts)
    host = host.lower()
    if not host or host.startswith("-"):
        raise refused("names no host")
    if not any(is_host(host, allowed.lower()) for allowed in hosts):
        named = ", ".join(hosts) if hosts else "none"
        raise TaskFailed(
            "source_refused",
            f"The host {host} is not among those this pool allows for git: {named}.",
        )


def host_of(parts: urllib.parse.SplitResult) -> str:
    """The host, with its port unless that is the default of the scheme."""
    try:
        port = parts.port
    except ValueError:
        raise refused("has an invalid port")
    host = parts.hostname or ""
    return host if not host or port in (None, USUAL_PORTS[parts.scheme]) else f"{host}:{port}"


def is_host(host: str, allowed: str) -> bool:
    """Whether `allowed` covers the host. A name covers the default port only; `*.example.com`
    covers every host below example.com.
    """
    return host == allowed or (
        allowed.startswith("*.") and host.endswith(allowed[1:]) and len(host) > len(allowed) - 1
    )


def check_ref(ref: str) -> None:
    if (
        not REF.match(ref)
        or ".." in ref
        or ref.endswith((".lock", "/", "."))
        or "//" in ref
        or "@{" in ref
    ):
        raise TaskFailed(
            "source_refused",
            f"{ref[:100]!r} is not a git ref. Give a branch, a tag or a commit.",
        )


def check_path(path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or not PATH.match(path):
        raise TaskFailed("source_refused", f"The path {path[:100]!r} leads out of the source.")
    return "/".join(parts)


def refused(what: str) -> TaskFailed:
    return TaskFailed("source_refused", f"The address of the git source {what}.")


def fetch_git(job: Job, url: str, ref: str, hosts: tuple[str, ...]) -> str:
    """Fetch a ref into the source folder as the task's user; returns the commit."""
    check_url(url, hosts)
    ref = ref or "HEAD"
    if ref != "HEAD":
        check_ref(ref)
    git = [
        "git",
        *(part for option in (*OPTIONS, f"credential.helper={HELPER}") for part in ("-c", option)),
    ]
    env = {**ENVIRONMENT, "GIT_SSH_COMMAND": job.environment.get("GIT_SSH_COMMAND", SSH)}
    job.log_line(f"Berth: git {url} {ref}")
    demand(job, [*git, "init", "-q", "--template=", "."], env)
    fetch = [*git, "fetch", "-q", "--no-tags", "--no-recurse-submodules"]
    target = "FETCH_HEAD"
    if job.run([*fetch, "--depth=1", "--", url, ref], "fetch", env, cwd=job.folder.source) != 0:
        if not COMMIT.match(ref):
            raise failure(job, ref)
        # Some servers refuse to serve a commit by its id: then all branches and tags are fetched.
        demand(
            job,
            [*fetch, "--", url, "+refs/heads/*:refs/remotes/berth/*", "+refs/tags/*:refs/tags/*"],
            env,
        )
        target = ref
    if (
        job.run([*git, "checkout", "-q", "--detach", target], "fetch", env, cwd=job.folder.source)
        != 0
    ):
        raise failure(job, ref)
    named = job.folder.top / "commit"
    if (
        job.run(
            [*git, "rev-parse", "HEAD"],
            "fetch",
            env,
            stdout_to=named,
            most=1000,
            cwd=job.folder.source,
        )
        != 0
    ):
        raise failure(job, ref)
    commit = named.read_text(errors="replace").strip()
    if not COMMIT.match(commit):
        raise TaskFailed("source_failed", "git did not print the id of the commit.")
    job.log_line(f"Berth: commit {commit}")
    return commit


def demand(job: Job, argv: list[str], env: dict[str, str]) -> None:
    if job.run(argv, "fetch", env, cwd=job.folder.source) != 0:
        raise failure(job, "")


def failure(job: Job, ref: str) -> TaskFailed:
    text = strip_ansi(job.tail)
    if any(sign in text for sign in GONE):
        return TaskFailed("git_ref_gone", f"The git source no longer has {ref!r}.")
    messages = [
        line.strip() for line in text.splitlines() if line.startswith(("fatal:", "error:", "ssh:"))
    ]
    # Masked before it is cut, because masking does not find half a secret.
    reason = job.clean(messages[-1]) if messages else "git gave no reason"
    return TaskFailed("source_failed", f"git cannot fetch the source: {reason}"[:400])
