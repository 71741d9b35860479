"""The API server's validation and defaults for pods and secrets, as far as a pod provider meets
them.
"""

import base64
import binascii
import copy
import ipaddress
import re
from typing import Any

from tests.kubernetes_cluster.fake_objects import LABEL_NAME, LABEL_VALUE, Refused, Thing, invalid

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(
    r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
QUANTITY = re.compile(r"([+-]?[0-9.]+)(([KMGTPE]i)|[numkMGTPE]|[eE][+-]?[0-9]+)?")
SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
UNITS = {
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
}
UNITS |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)}
CHANGEABLE = "`spec.containers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations`"
LONGEST_ANNOTATIONS = 256 * 1024
NAME_SAID = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
TOLERATIONS = [
    {
        "key": f"node.kubernetes.io/{name}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for name in ("not-ready", "unreachable")
]
Causes = list[tuple[str, str, str]]
# Fields that are known, where an unknown one is refused if that is asked for; what is not listed
# takes anything.
KNOWN: dict[str, set[str]] = {
    "": {"apiVersion", "kind", "metadata", "spec", "status"},
    "spec": {
        "containers", "initContainers", "volumes", "restartPolicy", "terminationGracePeriodSeconds",
        "activeDeadlineSeconds", "nodeSelector", "serviceAccountName", "serviceAccount",
        "automountServiceAccountToken", "nodeName", "hostNetwork", "dnsPolicy", "imagePullSecrets",
        "hostname", "subdomain", "affinity", "schedulerName", "tolerations", "priorityClassName",
        "priority", "enableServiceLinks", "preemptionPolicy", "runtimeClassName",
        "shareProcessNamespace", "overhead", "securityContext", "os", "topologySpreadConstraints",
    },
    "spec.containers": {
        "name", "image", "command", "args", "workingDir", "ports", "env", "envFrom", "resources",
        "volumeMounts", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle",
        "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "securityContext",
        "stdin", "tty", "volumeDevices",
    },
}  # fmt: skip


def check_metadata(kind: str, thing: Thing) -> Causes:
    meta, causes = thing["metadata"], []
    if not SUBDOMAIN.fullmatch(meta["name"]):
        causes.append(
            ("FieldValueInvalid", "metadata.name", f'Invalid value: "{meta["name"]}": {NAME_SAID}')
        )
    for key, value in (meta.get("labels") or {}).items():
        if not LABEL_NAME.fullmatch(key):
            causes.append(
                (
                    "FieldValueInvalid",
                    "metadata.labels",
                    f'Invalid value: "{key}": name part must consist of alphanumeric characters',
                )
            )
        elif not LABEL_VALUE.fullmatch(value):
            causes.append(
                (
                    "FieldValueInvalid",
                    "metadata.labels",
                    (
                        f'Invalid value: "{value}": a valid label must be an empty '
                        "string or consist of"
                    ),
                )
            )
    size = sum(len(key) + len(value) for key, value in (meta.get("annotations") or {}).items())
    if size > LONGEST_ANNOTATIONS:
        causes.append(
            (
                "FieldValueTooLong",
                "metadata.annotations",
                f"Too long: may not be more than {LONGEST_ANNOTATIONS} bytes",
            )
        )
    return causes


def decode(kind: str, thing: Thing, *, is_strict: bool) -> None:
    """What is no such object at all is a bad request, before it is looked at any closer."""
    if not isinstance(thing, dict):
        raise Refused(400, "the object provided is unrecognized (must be of type " + kind + ")")
    if kind != "Pod":
        return
    try:
        _check_types(thing)
    except TypeError as error:
        raise Refused(
            400, f'{kind} in version "v1" cannot be handled as a {kind}: {error}'
        ) from None
    unknown = [f'unknown field "{path}"' for path in _unknown_fields(thing)]
    if unknown and is_strict:
        raise Refused(
            400,
            (
                f'{kind} in version "v1" cannot be handled as a {kind}: strict decoding error: '
                f"{', '.join(unknown)}"
            ),
        )


def _check_types(pod: Thing) -> None:
    spec = pod.get("spec") or {}
    if not isinstance(spec, dict):
        raise TypeError("json: cannot unmarshal into Go struct field Pod.spec of type v1.PodSpec")
    for label, value in [
        *(pod["metadata"].get("labels") or {}).items(),
        *(spec.get("nodeSelector") or {}).items(),
    ]:
        if not isinstance(value, str):
            raise TypeError(
                f"json: cannot unmarshal {type(value).__name__} into Go struct field of type "
                f"string ({label})"
            )
    for container in spec.get("containers") or []:
        if not isinstance(container, dict):
            raise TypeError(
                "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of "
                "type v1.Container"
            )
        for variable in container.get("env") or []:
            if not isinstance(variable.get("value", ""), str):
                raise TypeError(
                    "json: cannot unmarshal number into Go struct field "
                    "EnvVar.spec.containers.env.value of type string"
                )
        for amounts in (container.get("resources") or {}).values():
            for amount in amounts.values() if isinstance(amounts, dict) else ():
                if not QUANTITY.fullmatch(str(amount)):
                    pattern = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
                    raise TypeError(f"quantities must match the regular expression '{pattern}'")


def _unknown_fields(pod: Thing) -> list[str]:
    found = [key for key in pod if key not in KNOWN[""]]
    spec = pod.get("spec") or {}
    found += [f"spec.{key}" for key in spec if key not in KNOWN["spec"]]
    for number, container in enumerate(spec.get("containers") or []):
        found += [
            f"spec.containers[{number}].{key}"
            for key in container
            if key not in KNOWN["spec.containers"]
        ]
    return found


def quantity(text: Any) -> float:
    found = QUANTITY.fullmatch(str(text))
    assert found
    unit = found[2] or ""
    return (
        float(found[1] + unit)
        if unit[:1] in ("e", "E") and len(unit) > 1 and unit != "Ei"
        else float(found[1]) * UNITS[unit]
    )


def check_pod(pod: Thing) -> None:
    spec, causes = pod.get("spec") or {}, check_metadata("Pod", pod)
    if not spec.get("containers"):
        causes.append(("FieldValueRequired", "spec.containers", "Required value"))
    volumes = {volume.get("name") for volume in spec.get("volumes") or []}
    for number, volume in enumerate(spec.get("volumes") or []):
        if not LABEL.fullmatch(volume.get("name", "")):
            causes.append(
                (
                    "FieldValueInvalid",
                    f"spec.volumes[{number}].name",
                    f'Invalid value: "{volume.get("name", "")}": {NAME_SAID}',
                )
            )
    for number, container in enumerate(spec.get("containers") or []):
        causes += _check_container(container, f"spec.containers[{number}]", volumes)
    if spec.get("restartPolicy", "Always") not in ("Always", "OnFailure", "Never"):
        said = (
            f'Unsupported value: "{spec["restartPolicy"]}": supported values: "Always", '
            '"Never", "OnFailure"'
        )
        causes.append(("FieldValueNotSupported", "spec.restartPolicy", said))
    if spec.get("serviceAccountName") and not SUBDOMAIN.fullmatch(spec["serviceAccountName"]):
        causes.append(
            (
                "FieldValueInvalid",
                "spec.serviceAccountName",
                f'Invalid value: "{spec["serviceAccountName"]}": {NAME_SAID}',
            )
        )
    causes += _check_placing(spec)
    if causes:
        raise invalid("Pod", pod["metadata"]["name"], causes)


def _check_container(container: Thing, where: str, volumes: set[Any]) -> Causes:
    causes: Causes = []
    if not container.get("name"):
        causes.append(("FieldValueRequired", f"{where}.name", "Required value"))
    elif not LABEL.fullmatch(container["name"]):
        causes.append(
            (
                "FieldValueInvalid",
                f"{where}.name",
                f'Invalid value: "{container["name"]}": a lowercase RFC 1123 label',
            )
        )
    if not container.get("image"):
        causes.append(("FieldValueRequired", f"{where}.image", "Required value"))
    elif container["image"] != container["image"].strip():
        causes.append(
            (
                "FieldValueInvalid",
                f"{where}.image",
                (
                    f'Invalid value: "{container["image"]}": must not have leading or '
                    "trailing whitespace"
                ),
            )
        )
    for number, variable in enumerate(container.get("env") or []):
        if not variable.get("name"):
            causes.append(("FieldValueRequired", f"{where}.env[{number}].name", "Required value"))
        elif "=" in variable["name"]:
            causes.append(
                (
                    "FieldValueInvalid",
                    f"{where}.env[{number}].name",
                    f'Invalid value: "{variable["name"]}": environment variable name',
                )
            )
    for number, mount in enumerate(container.get("volumeMounts") or []):
        if mount.get("name") not in volumes:
            causes.append(
                (
                    "FieldValueNotFound",
                    f"{where}.volumeMounts[{number}].name",
                    f'Not found: "{mount.get("name")}"',
                )
            )
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, wanted in requests.items():
        if name in limits and quantity(wanted) > quantity(limits[name]):
            said = (
                f'Invalid value: "{wanted}": must be less than or equal to {name} limit of '
                f"{limits[name]}"
            )
            causes.append(("FieldValueInvalid", f"{where}.resources.requests", said))
    return causes


def _check_placing(spec: Thing) -> Causes:
    causes: Causes = []
    for key, value in (spec.get("nodeSelector") or {}).items():
        if not LABEL_NAME.fullmatch(key) or not LABEL_VALUE.fullmatch(value):
            causes.append(
                (
                    "FieldValueInvalid",
                    "spec.nodeSelector",
                    f'Invalid value: "{key if not LABEL_NAME.fullmatch(key) else value}"',
                )
            )
    for number, toleration in enumerate(spec.get("tolerations") or []):
        where = f"spec.tolerations[{number}]"
        if toleration.get("effect", "") not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
            said = (
                f'Unsupported value: "{toleration["effect"]}": supported values: "NoExecute", '
                '"NoSchedule", "PreferNoSchedule"'
            )
            causes.append(("FieldValueNotSupported", f"{where}.effect", said))
        if toleration.get("operator", "Equal") not in ("Equal", "Exists", "Gt", "Lt"):
            said = (
                f'Unsupported value: "{toleration["operator"]}": supported values: '
                '"Equal", "Exists"'
            )
            causes.append(("FieldValueNotSupported", f"{where}.operator", said))
    return causes


def complete_pod(pod: Thing) -> None:
    spec = pod["spec"]
    defaults: Thing = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
    }
    defaults |= {
        "schedulerName": "default-scheduler",
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    for key, value in defaults.items():
        spec.setdefault(key, value)
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    for container in spec["containers"]:
        latest = ":" not in container["image"].rpartition("/")[2] or container["image"].endswith(
            ":latest"
        )
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        resources = container.setdefault("resources", {})
        for name, value in (resources.get("limits") or {}).items():
            resources.setdefault("requests", {}).setdefault(name, value)
    for volume in spec.get("volumes") or []:
        for kind in ("secret", "configMap", "projected"):
            if kind in volume:
                volume[kind].setdefault("defaultMode", 420)
    tolerated = {toleration.get("key") for toleration in spec.get("tolerations") or []}
    spec["tolerations"] = [
        *(spec.get("tolerations") or []),
        *(t for t in copy.deepcopy(TOLERATIONS) if t["key"] not in tolerated),
    ]
    resources = [container.get("resources") or {} for container in spec["containers"]]
    has_any = any(part.get("requests") or part.get("limits") for part in resources)
    is_sure = all(
        {"cpu", "memory"} <= set(part.get("limits") or {})
        and part.get("requests") == part.get("limits")
        for part in resources
    )
    pod["status"] = {
        "phase": "Pending",
        "qosClass": "Guaranteed" if is_sure else "Burstable" if has_any else "BestEffort",
    }


def check_pod_update(old: Thing, new: Thing) -> None:
    def fixed(pod: Thing) -> Thing:
        spec = copy.deepcopy(pod.get("spec") or {})
        for container in spec.get("containers") or []:
            container.pop("image", None)
        return {
            key: value
            for key, value in spec.items()
            if key not in ("activeDeadlineSeconds", "tolerations")
        }

    if fixed(old) != fixed(new):
        said = f"Forbidden: pod updates may not change fields other than {CHANGEABLE}"
        raise invalid("Pod", old["metadata"]["name"], [("FieldValueForbidden", "spec", said)])
    if causes := check_metadata("Pod", new):
        raise invalid("Pod", old["metadata"]["name"], causes)


def check_pod_status(old: Thing, new: Thing) -> None:
    """The address and the list of addresses say the same; the first is what a plain client sets."""
    status, before = new.setdefault("status", {}), old.get("status") or {}
    ip, ips = status.get("podIP"), status.get("podIPs")
    if ip and ip != before.get("podIP"):
        status["podIPs"] = ips = [{"ip": ip}] if not ips or ips[0].get("ip") != ip else ips
    elif ip and not ips:
        status["podIPs"] = ips = [{"ip": ip}]
    for number, entry in enumerate(ips or []):
        try:
            ipaddress.ip_address(entry["ip"])
        except ValueError:
            said = (
                f'Invalid value: "{entry["ip"]}": must be a valid IP address, (e.g. 10.9.8.7 or '
                "2001:db8::ffff)"
            )
            raise invalid(
                "Pod",
                old["metadata"]["name"],
                [("FieldValueInvalid", f"status.podIPs[{number}]", said)],
            ) from None


def complete_secret(secret: Thing, old: Thing | None = None) -> None:
    plain = secret.pop("stringData", None) or {}
    data = dict(secret.get("data") or {}) | {
        key: base64.b64encode(text.encode()).decode() for key, text in plain.items()
    }
    name = secret["metadata"]["name"]
    for key, value in data.items():
        if not SECRET_KEY.fullmatch(key):
            raise invalid(
                "Secret",
                name,
                [
                    (
                        "FieldValueInvalid",
                        f"data[{key}]",
                        f'Invalid value: "{key}": a valid config key must consist of',
                    )
                ],
            )
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise Refused(
                400,
                (
                    'Secret in version "v1" cannot be handled as a Secret: illegal base64 data '
                    "at input byte 0"
                ),
            ) from None
    if data:
        secret["data"] = data
    secret.setdefault("type", "Opaque")
    if old is None:
        return
    if secret["type"] != old["type"]:
        raise invalid(
            "Secret",
            name,
            [
                (
                    "FieldValueInvalid",
                    "type",
                    f'Invalid value: "{secret["type"]}": field is immutable',
                )
            ],
        )
    if old.get("immutable") and (
        secret.get("data") != old.get("data") or not secret.get("immutable")
    ):
        raise invalid(
            "Secret",
            name,
            [
                (
                    "FieldValueForbidden",
                    "data",
                    "Forbidden: field is immutable when `immutable` is set",
                )
            ],
        )
