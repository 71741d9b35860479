"""What a kubeconfig, or the cluster that we run in, says of a context: its server, credentials and
TLS, through the official client.

Nothing is global: a process may talk with many clusters, and with a new kubeconfig as soon as the
file changes.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes import config as untyped
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.config import ConfigException

from project.kernel.kubernetes.circuit_breaker import Breaker
from project.kernel.kubernetes.deadline import limit_connections
from project.kernel.kubernetes.errors import describe
from project.kernel.kubernetes.exec_plugins import forget_failure, raise_failure
from project.kernel.kubernetes.proxies import choose_proxy
from project.kernel.outbox.operations import Misconfigured

CONNECTIONS = 16  # kept open
OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE = "default"
CONFIGS = ("BERTH_KUBECONFIG", "KUBECONFIG")
CONFIG: Any = untyped


@dataclass(frozen=True, slots=True)
class Connection:
    """To the API server of a context, for all pools there."""

    client: ApiClient
    namespace: str  # where none is named
    words: str  # "context prod"
    breaker: Breaker
    stamp: Any  # of the files it was made from
    server: str  # its address and authority, in short


def config_files() -> list[Path]:
    told = next((os.environ[name] for name in CONFIGS if os.environ.get(name)), "~/.kube/config")
    return [Path(name).expanduser() for name in told.split(os.pathsep) if name]


def connect(context: str) -> Connection:
    # What the environment says is looked at once the server is known.
    configuration: Any = Configuration(proxy="", no_proxy="")
    configuration.retries = False  # we have a clock of our own for that
    configuration.connection_pool_maxsize = CONNECTIONS
    stamp = stamp_of(context)
    namespace = _read_config(context, configuration) if context else _read_own(configuration)
    choose_proxy(configuration, describe_context(context))
    client = ApiClient(configuration)
    limit_connections(client.rest_client.pool_manager)
    return Connection(
        client, namespace, describe_context(context), Breaker(), stamp, _digest(configuration)
    )


def _digest(configuration: Any) -> str:
    file = configuration.ssl_ca_cert
    authority = Path(file).read_bytes() if file and Path(file).is_file() else b""
    return hashlib.sha256(f"{configuration.host}\n".encode() + authority).hexdigest()[:16]


def describe_context(context: str) -> str:
    return f"context {context}" if context else "this cluster"


def _read_config(context: str, configuration: Any) -> str:
    files = config_files()
    if not any(file.is_file() for file in files):
        names = ", ".join(map(str, files))
        raise Misconfigured(
            f"There is no kubeconfig at {names}, so context {context} is not known. Put it there, "
            "or name it in BERTH_KUBECONFIG for web, controllers and workers alike."
        )
    told = os.pathsep.join(map(str, files))
    try:
        contexts, _ = CONFIG.list_kube_config_contexts(told)
        known = {str(each["name"]): each.get("context") or {} for each in contexts}
        if context not in known:
            names = ", ".join(sorted(known)) or "none"
            raise Misconfigured(
                f"The kubeconfig {told} has no context {context}. Add it there, or name "
                f"one of: {names}."
            )
        forget_failure()
        CONFIG.load_kube_config(
            told, context=context, client_configuration=configuration, persist_config=False
        )
    except (ConfigException, OSError, yaml.YAMLError, TypeError, KeyError, ValueError) as error:
        raise Misconfigured(
            f"The kubeconfig {told} can't be used for context {context}: "
            f"{describe(error)}. Mend it."
        ) from error
    raise_failure()
    return str(known[context].get("namespace") or DEFAULT_NAMESPACE)


def _read_own(configuration: Any) -> str:
    try:
        CONFIG.load_incluster_config(client_configuration=configuration)
    except (ConfigException, OSError) as error:
        raise Misconfigured(
            f"No context is named, and this process runs in no cluster ({describe(error)}). Name "
            "one in provider.context, or mount a service account's token."
        ) from error
    return OWN_NAMESPACE.read_text().strip() if OWN_NAMESPACE.is_file() else DEFAULT_NAMESPACE


def stamp_of(context: str) -> Any:
    """Equal as long as the files are: those of a kubeconfig; the token of our own account is
    read again by the client.
    """
    if not context:
        return os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get(
            "KUBERNETES_SERVICE_PORT", ""
        )
    return tuple(
        (file, info.st_mtime_ns, info.st_ino, info.st_size) if (info := _stat(file)) else (file,)
        for file in config_files()
    )


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:
        return None
