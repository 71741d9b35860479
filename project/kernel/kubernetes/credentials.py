"""Server, credentials and TLS of a context, read by the official client from a kubeconfig or from
the cluster that Berth runs in.

There is no global state: a process may talk with many clusters, and uses a changed kubeconfig at
once.
"""

import hashlib
import os
from collections.abc import Hashable
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
from project.kernel.kubernetes.exec_plugins import raising_failures
from project.kernel.kubernetes.proxies import choose_proxy
from project.kernel.outbox.operations import Misconfigured

CONNECTIONS = 16  # kept open
OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE = "default"
config: Any = untyped
CONFIGS = ("BERTH_KUBECONFIG", "KUBECONFIG")


@dataclass(frozen=True, slots=True)
class Connection:
    """The connection to the API server of a context, for all its pools."""

    client: ApiClient
    namespace: str  # the default of the context
    words: str  # "context prod"
    breaker: Breaker
    stamp: Hashable  # of the files of the context
    server: str  # digest of its address and authority


def config_files() -> list[Path]:
    names = next((os.environ[name] for name in CONFIGS if os.environ.get(name)), "~/.kube/config")
    return [Path(name).expanduser() for name in names.split(os.pathsep) if name]


def connect(context: str) -> Connection:
    # choose_proxy reads the proxies of the environment, once the server is known.
    configuration = Configuration(proxy="", no_proxy="")
    configuration.retries = False  # the deadline and the outbox decide about retries
    configuration.connection_pool_maxsize = CONNECTIONS
    stamp, words = stamp_of(context), describe_context(context)
    namespace = _read_config(context, configuration) if context else _read_own(configuration)
    choose_proxy(configuration, words)
    client = ApiClient(configuration)
    limit_connections(client.rest_client.pool_manager)
    return Connection(client, namespace, words, Breaker(), stamp, _digest(configuration))


def _digest(configuration: Configuration) -> str:
    file = configuration.ssl_ca_cert
    authority = Path(file).read_bytes() if file and Path(file).is_file() else b""
    return hashlib.sha256(f"{configuration.host}\n".encode() + authority).hexdigest()[:16]


def describe_context(context: str) -> str:
    return f"context {context}" if context else "this cluster"


def _read_config(context: str, configuration: Configuration) -> str:
    """Fill the configuration; return the namespace of the context."""
    files = config_files()
    if not any(file.is_file() for file in files):
        raise Misconfigured(
            f"There is no kubeconfig at {', '.join(map(str, files))}, so context {context} is "
            "unknown. Put the file there, or set BERTH_KUBECONFIG for web, controllers and workers."
        )
    names = os.pathsep.join(map(str, files))
    try:
        contexts, _ = config.list_kube_config_contexts(names)
        known = {str(each["name"]): each.get("context") or {} for each in contexts}
        if context not in known:
            raise Misconfigured(
                f"The kubeconfig {names} has no context {context}. Add it, or name one of: "
                f"{', '.join(sorted(known)) or 'none'}."
            )
        with raising_failures():
            config.load_kube_config(
                names, context=context, client_configuration=configuration, persist_config=False
            )
    except (ConfigException, OSError, yaml.YAMLError, TypeError, KeyError, ValueError) as error:
        raise Misconfigured(
            f"The kubeconfig {names} can't be used for context {context}: {describe(error)}. "
            "Correct it."
        ) from error
    return str(known[context].get("namespace") or DEFAULT_NAMESPACE)


def _read_own(configuration: Configuration) -> str:
    try:
        config.load_incluster_config(client_configuration=configuration)
    except (ConfigException, OSError) as error:
        raise Misconfigured(
            f"provider.context is empty, and this process runs in no cluster ({describe(error)}). "
            "Name a context, or mount the token of a service account."
        ) from error
    return OWN_NAMESPACE.read_text().strip() if OWN_NAMESPACE.is_file() else DEFAULT_NAMESPACE


def stamp_of(context: str) -> Hashable:
    """Equal as long as the files of the kubeconfig are unchanged. In a cluster, the client itself
    reads the token of the service account again.
    """
    if not context:
        return tuple(os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    return tuple(map(_stamp_of_file, config_files()))


def _stamp_of_file(file: Path) -> Hashable:
    try:
        found = file.stat()
    except OSError:
        return (file,)
    return file, found.st_mtime_ns, found.st_ino, found.st_size
