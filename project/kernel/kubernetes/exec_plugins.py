"""Programs that a kubeconfig names to sign in with. The library waits for them without end, asks at
the terminal, and goes on as nobody when they fail: here they have their time, no terminal, and who
failed is said."""

import json
import os
import signal
import subprocess
import threading
from contextlib import suppress
from typing import Any

from kubernetes.config import kube_config as untyped
from kubernetes.config.exec_provider import ExecProvider

from project.kernel.kubernetes.oidc import refresh
from project.kernel.outbox.operations import Misconfigured, ProviderError

PATIENCE = 10.0  # seconds
LONGEST = 200
KUBE_CONFIG: Any = untyped
_failed = threading.local()


class Plugin(ExecProvider):
    args: list[str]
    env: dict[str, str]
    api_version: str
    cwd: str | None
    cluster: Any

    def run(self, previous_response: Any = None) -> Any:
        _failed.error = None
        try:
            return self._read(self._call())
        except ProviderError as error:
            # The library logs what is raised here, and goes on without credentials.
            _failed.error = error
            raise

    def _call(self) -> str:
        spec: dict[str, Any] = {"interactive": False}
        if self.cluster:
            spec["cluster"] = dict(self.cluster.value)
            for each in self.cluster.value.get("extensions") or ():
                if each["name"] == "client.authentication.k8s.io/exec":
                    spec["cluster"]["config"] = each["extension"]
        told = json.dumps({"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec})
        try:
            process = subprocess.Popen(
                self.args, env={**self.env, "KUBERNETES_EXEC_INFO": told}, cwd=self.cwd, text=True,
                errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise Misconfigured(
                f"{self._words} can't be run: {error.strerror}. Install it where Berth runs."
            ) from error
        with process:
            try:
                said, why = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                end_group(process)
                raise ProviderError(
                    f"{self._words} does not end within {PATIENCE:g} s. It is asked "
                    "again by itself."
                ) from None
        if process.returncode:
            last = (why.strip().splitlines() or ["it does not say why"])[-1][:LONGEST]
            raise Misconfigured(f"{self._words} ends with {process.returncode}: {last}")
        return said

    def _read(self, text: str) -> Any:
        try:
            found = json.loads(text)
        except ValueError:
            found = None  # the text itself may hold the token
        if not isinstance(found, dict) or not isinstance(found.get("status"), dict):
            raise Misconfigured(f"{self._words} does not answer with credentials.")
        if found.get("apiVersion") != self.api_version:
            raise Misconfigured(f"{self._words} does not answer in {self.api_version}.")
        return found["status"]

    @property
    def _words(self) -> str:
        return f"The credential plugin {self.args[0]} of the kubeconfig"


def end_group(process: "subprocess.Popen[str]") -> None:
    """With whatever it has started, else a child of it would keep the pipe open."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def forget_failure() -> None:
    _failed.error = None


def raise_failure() -> None:
    """Of the plugin that this thread has just run."""
    error: ProviderError | None = getattr(_failed, "error", None)
    if error is not None:
        raise error


KUBE_CONFIG.ExecProvider = Plugin  # the only places where the library lets one stand in
KUBE_CONFIG.KubeConfigLoader._refresh_oidc = refresh
