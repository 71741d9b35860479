"""Credential plugins that a kubeconfig names. The official client waits for them without end, lets
them ask at the terminal, and goes on without credentials when they fail. Here a plugin has a
timeout and no terminal, and its failure is an error.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from kubernetes.config import kube_config as untyped
from kubernetes.config.exec_provider import ExecProvider

from project.kernel.kubernetes.objects import Object
from project.kernel.kubernetes.oidc import refresh
from project.kernel.outbox.operations import Misconfigured, ProviderError

PATIENCE = 10.0  # seconds
MAX_REASON_LENGTH = 200
KUBE_CONFIG: Any = untyped
_failure: ContextVar[ProviderError | None] = ContextVar("failure", default=None)


class Plugin(ExecProvider):
    args: list[str]
    env: dict[str, str]
    api_version: str
    cwd: str | None
    cluster: Any

    def run(self, previous_response: object = None) -> Object:
        try:
            return self._read(self._call())
        except ProviderError as error:
            # The client logs this error and goes on without credentials.
            _failure.set(error)
            raise

    def _call(self) -> str:
        spec: dict[str, object] = {"interactive": False}
        if self.cluster:
            cluster = dict(self.cluster.value)
            for each in self.cluster.value.get("extensions") or ():
                if each["name"] == "client.authentication.k8s.io/exec":
                    cluster["config"] = each["extension"]
            spec["cluster"] = cluster
        info = json.dumps({"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec})
        try:
            process = subprocess.Popen(
                self.args, env={**self.env, "KUBERNETES_EXEC_INFO": info}, cwd=self.cwd, text=True,
                errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise Misconfigured(
                f"{self._words} can't be run: {error.strerror}. Install it where Berth runs."
            ) from error
        with process:
            try:
                output, errors = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                end_group(process)
                raise ProviderError(
                    f"{self._words} does not end within {PATIENCE:g} s. Berth tries again."
                ) from None
        if process.returncode:
            last = (errors.strip().splitlines() or ["it does not say why"])[-1][:MAX_REASON_LENGTH]
            raise Misconfigured(f"{self._words} ends with {process.returncode}: {last}")
        return output

    def _read(self, output: str) -> Object:
        try:
            found = json.loads(output)
        except ValueError:
            found = None  # the error must not quote the output, which may hold the token
        if not isinstance(found, dict) or not isinstance(found.get("status"), dict):
            raise Misconfigured(f"{self._words} does not answer with credentials.")
        if found.get("apiVersion") != self.api_version:
            raise Misconfigured(f"{self._words} does not answer in {self.api_version}.")
        status: Object = found["status"]
        return status

    @property
    def _words(self) -> str:
        return f"The credential plugin {self.args[0]} of the kubeconfig"


def end_group(process: "subprocess.Popen[str]") -> None:
    """Kill the plugin and its children. A child would keep the pipes open."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


@contextmanager
def raising_failures() -> Iterator[None]:
    """Raise the failure of a plugin that the client runs in the block."""
    _failure.set(None)
    yield
    if (error := _failure.get()) is not None:
        raise error


# The official client has no other place for a replacement.
KUBE_CONFIG.ExecProvider = Plugin
KUBE_CONFIG.KubeConfigLoader._refresh_oidc = refresh
