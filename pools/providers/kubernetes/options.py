"""The options under `provider:` of a pool of pods. Pure.

The rules are those of Kubernetes, so that Berth reports faults before it calls a cluster. Faults
that only the cluster knows (quotas, admission, missing service accounts) come from a dry run, see
dry_run.py.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import urlsplit

from pools.config.durations import parse_duration
from pools.config.fields import EMPTY, Fields, Option
from pools.config.parsing import (
    Choice,
    Faults,
    Flag,
    Integer,
    ListOf,
    Pattern,
    Schema,
    Text,
    Texts,
    ValueType,
    field_path,
    show_value,
    suggest_names,
)
from pools.providers.kubernetes.names import LABEL_PREFIX, is_reserved

# Seconds: an evicted pod lets its task end first, and an apply may take long.
DEFAULT_GRACE = 3600
LONGEST_GRACE = 86400
DEFAULT_USER = 10002  # the user of deploy/agent.Dockerfile
LARGEST_USER = 2**31 - 1
MOST_ENTRIES = 256
LONGEST_TEXT = 32_768
LARGEST_ANNOTATIONS = 262_144
LONGEST_QUANTITY = 60

DNS_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
DNS_NAME = re.compile(
    r"(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
)
KEY_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
# registry.example:5000/team/name:tag@sha256:...; registries want names in lower case.
IMAGE = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?/)?"
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[A-Za-z0-9+._-]+:[0-9a-fA-F]{32,})?"
)
QUANTITY = re.compile(
    r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]+)?"
)
SUFFIXES = {"m": Decimal("0.001"), "k": Decimal(1000)}
SUFFIXES |= {suffix: Decimal(1000**power) for power, suffix in enumerate("MGTPE", 2)}
SUFFIXES |= {f"{suffix}i": Decimal(1024**power) for power, suffix in enumerate("KMGTPE", 1)}

LABEL_RULE = (
    "Up to 63 letters, digits, dashes, underscores and dots, the first and last a letter or digit; "
    "optionally after a domain and a slash."
)
VALUE_RULE = (
    "Up to 63 letters, digits, dashes, underscores and dots; the first and last a letter or digit."
)
NAME_RULE = "Lower-case letters, digits and dashes, up to 63; the first and last a letter or digit."


def _is_plain_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  (raises ValueError)
    except ValueError:  # like http://[x
        return False
    extra = parts.username or parts.query or parts.fragment
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not extra


class Url(ValueType[str]):
    def read(self, value: object, where: str, faults: Faults) -> str | None:
        url = Text(500).read(value, where, faults)
        if not url or _is_plain_address(url):
            return url
        way_out = "Write the address that pods reach, like https://berth.example.com/."
        faults.add(where, f"{show_value(url)} is not an address of Berth.", way_out)
        return None

    def schema(self) -> Schema:
        return Text(500).schema()


class Grace(ValueType[int]):
    """Seconds, or a length of time."""

    def read(self, value: object, where: str, faults: Faults) -> int | None:
        seconds = parse_duration(value) if isinstance(value, str) else None
        if seconds is not None and seconds == int(seconds):
            value = int(seconds)
        return Integer(0, LONGEST_GRACE).read(value, where, faults)

    def schema(self) -> Schema:
        return {"anyOf": [Integer(0, LONGEST_GRACE).schema(), {"type": "string"}]}

    @property
    def hint(self) -> str:
        return f"Seconds, up to {LONGEST_GRACE}, or a length of time like 30m."


def _is_amount(text: str) -> bool:
    try:
        amount_of(text)
    except ValueError:
        return False
    return True


class Quantity(ValueType[str]):
    def read(self, value: object, where: str, faults: Faults) -> str | None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        text = show_value(value) if is_number else value
        if isinstance(text, str) and len(text) <= LONGEST_QUANTITY and _is_amount(text):
            return text
        fault = f"{show_value(value)} is not an amount."
        faults.add(where, fault, "Write it like 2, 500m, 512Mi or 4Gi.")
        return None

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "string"}, {"type": "number"}]}


def _fault_of_variable(name: object) -> tuple[str, str] | None:
    if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
        return (
            "This is not the name of a variable.",
            "Use letters, digits and underscores, no digit first.",
        )
    if name.startswith("BERTH_"):
        return "Berth sets the variables that begin with BERTH_.", "Choose another name."
    return None


def _fault_of_resource(name: object) -> tuple[str, str] | None:
    known = ("cpu", "memory", "ephemeral-storage")
    if name in known or (isinstance(name, str) and (name.startswith("hugepages-") or "/" in name)):
        return None
    way_out = f"{suggest_names(name, known)} Device resources have a domain, like nvidia.com/gpu."
    return "This is not a resource.", way_out


def _fault_of_key(name: object) -> tuple[str, str] | None:
    domain, slash, last = name.rpartition("/") if isinstance(name, str) else ("", "", "")
    if KEY_NAME.fullmatch(last) and (not slash or DNS_NAME.fullmatch(domain)):
        return None
    return "This is not a name of a label or annotation.", LABEL_RULE


def _fault_of_label(name: object) -> tuple[str, str] | None:
    if isinstance(name, str) and is_reserved(name):
        return "Berth finds its pods by this label.", "Choose another name."
    return _fault_of_key(name)


def _fault_of_annotation(name: object) -> tuple[str, str] | None:
    if isinstance(name, str) and name.startswith(LABEL_PREFIX):
        return "Berth writes the annotations of this domain.", "Choose another name."
    return _fault_of_key(name)


def _object_name(pattern: re.Pattern[str], rule: str) -> Pattern:
    """A name, or an empty text."""
    return Pattern(re.compile(f"(?:{pattern.pattern})?"), rule, "a name of Kubernetes", missing="")


FaultOf = Callable[[object], tuple[str, str] | None]
WORDS = ListOf(Text(LONGEST_TEXT, False), "words", MOST_ENTRIES, "[python3, /agent.pyz]")
LABEL_VALUE = Pattern(VALUE, VALUE_RULE, "the value of a label", missing="")
QUANTITIES = Texts(
    "amounts are",
    "{cpu: 500m, memory: 1Gi}",
    "amounts",
    MOST_ENTRIES,
    Quantity(),
    _fault_of_resource,
)


def _labels(fault_of: FaultOf) -> Texts:
    return Texts("labels are", "{team: infra}", "labels", MOST_ENTRIES, LABEL_VALUE, fault_of)


def _texts(are: str, example: str, fault_of: FaultOf) -> Texts:
    return Texts(are, example, "entries", MOST_ENTRIES, Text(LONGEST_TEXT, False), fault_of)


TOLERATION_FIELDS = Fields(
    {
        "key": Option(Text(317), "Key of the taint."),
        "operator": Option(Choice(("Equal", "Exists")), "How the value is compared.", "Equal"),
        "value": Option(
            Pattern(VALUE, VALUE_RULE, "the value of a taint", missing=""), "Value of the taint."
        ),
        "effect": Option(
            Choice(("NoSchedule", "PreferNoSchedule", "NoExecute")), "Effect of the taint."
        ),
        "tolerationSeconds": Option(Integer(0, 2**31), "Seconds until a pod is evicted."),
    }
)


class Toleration(ValueType[Mapping[str, Any]]):
    def read(self, value: object, where: str, faults: Faults) -> Mapping[str, Any] | None:
        before = faults.count
        if isinstance(value, Mapping):  # manifests write "" for a field that is left out
            value = {name: item for name, item in value.items() if item != ""}
        found = TOLERATION_FIELDS.read(value, where, faults)
        if faults.count > before:
            return None
        if "key" in found and (fault := _fault_of_key(found["key"])):
            faults.add(field_path(where, "key"), *fault)
        exists = found.get("operator") == "Exists"
        if exists and "value" in found:
            way_out = "Remove the value, or write operator: Equal."
            faults.add(field_path(where, "value"), "The operator Exists takes no value.", way_out)
        if "key" not in found and not exists:
            way_out = "Write a key, or operator: Exists for all taints."
            faults.add(where, "The toleration has no key.", way_out)
        if "tolerationSeconds" in found and found.get("effect") != "NoExecute":
            way_out = "Remove the field, or write effect: NoExecute."
            only = "Only the effect NoExecute takes this field."
            faults.add(field_path(where, "tolerationSeconds"), only, way_out)
        return found

    def schema(self) -> Schema:
        return TOLERATION_FIELDS.schema()


TEMPLATE_FIELDS = Fields(
    {
        "image": Option(
            Pattern(
                IMAGE,
                "Write it like registry.example/team/agent:1.4.",
                "the name of an image",
                missing="The image is missing.",
                longest=500,
            ),
            "An image with python3.",
            is_required=True,
        ),
        "command": Option(WORDS, "Command in place of the entry point of the image."),
        "args": Option(WORDS, "Arguments of the command."),
        "env": Option(
            _texts("an environment is", "{TF_LOG: INFO}", _fault_of_variable),
            "Environment of the container.",
        ),
        "resources.requests": Option(
            QUANTITIES, "Resources that the pod reserves.", attribute="requests"
        ),
        "resources.limits": Option(
            QUANTITIES, "Most resources that the pod gets.", attribute="limits"
        ),
        "node_selector": Option(_labels(_fault_of_key), "Labels of the nodes."),
        "tolerations": Option(
            ListOf(
                Toleration(),
                "tolerations",
                MOST_ENTRIES,
                "[{key: dedicated, operator: Equal, value: ci, effect: NoSchedule}]",
            ),
            "Taints of nodes that the pod tolerates.",
        ),
        "service_account": Option(
            _object_name(DNS_NAME, "Use lower-case letters, digits, dashes and dots."),
            "Service account of the pod. Empty: none, and the pod gets no cluster token.",
        ),
        "image_pull_secrets": Option(
            ListOf(
                Pattern(
                    DNS_NAME,
                    "Use lower-case letters, digits, dashes and dots.",
                    "a name of Kubernetes",
                    missing="",
                ),
                "names",
                MOST_ENTRIES,
                "[registry-key]",
            ),
            "Secrets that hold the passwords of registries.",
        ),
        "labels": Option(_labels(_fault_of_label), "Labels of the pod."),
        "annotations": Option(
            _texts("annotations are", "{owner: infra@example.com}", _fault_of_annotation),
            "Annotations of the pod.",
        ),
        "grace": Option(Grace(), "Time that an evicted pod has to end its task.", DEFAULT_GRACE),
        "user": Option(Integer(0, LARGEST_USER), "User id in the container.", DEFAULT_USER),
        "writable_root": Option(Flag(), "Whether the root file system is writable.", False),
    }
)


class Template(ValueType[Mapping[str, Any]]):
    fields = TEMPLATE_FIELDS

    def read(self, value: object, where: str, faults: Faults) -> Mapping[str, Any] | None:
        found = TEMPLATE_FIELDS.read(value, where, faults)
        requests, limits = found.get("requests", {}), found.get("limits", {})
        for name, text in requests.items():
            if name in limits and amount_of(text) > amount_of(limits[name]):
                faults.add(
                    field_path(where, f"resources.requests.{name}"),
                    f"{text} is more than the limit, {limits[name]}.",
                    "Lower the request, or raise the limit.",
                )
        annotations = found.get("annotations", {})
        size = sum(len(name.encode()) + len(text.encode()) for name, text in annotations.items())
        if size > LARGEST_ANNOTATIONS:
            faults.add(
                field_path(where, "annotations"),
                "The annotations are too long.",
                f"Use {LARGEST_ANNOTATIONS:,} bytes in all.",
            )
        if found.get("user") == DEFAULT_USER:
            del found["user"]
        template = TEMPLATE_FIELDS.write_given({"grace": DEFAULT_GRACE} | found)
        return {name: each for name, each in template.items() if each is not False}

    def schema(self) -> Schema:
        return TEMPLATE_FIELDS.schema()


FIELDS = Fields(
    {
        "context": Option(
            Text(253), "Context of the kubeconfig. Empty: the cluster that Berth runs in."
        ),
        "namespace": Option(
            _object_name(DNS_LABEL, NAME_RULE),
            "Namespace of the pods. Empty: the namespace of the context.",
        ),
        "url": Option(
            Url(),
            "Address of Berth that the pods call, like https://berth.example.com/. Empty: "
            "BERTH_AGENT_URL.",
        ),
        "template": Option(Template(), "Template of the pods.", is_required=True),
        "agent": Option(Flag(), "Whether the members run the Berth agent.", True),
    }
)


def read_options(options: Mapping[str, Any], where: str, faults: Faults) -> Mapping[str, Any]:
    given = {name: value for name, value in options.items() if name != "kind"}
    found = FIELDS.read(given, where, faults)
    if given.get("agent") is not None:  # a fault here is not also a fault of `slots`
        found.setdefault("agent", False)
    return {name: each for name, each in found.items() if each is not True and each not in EMPTY}


def amount_of(text: str) -> Decimal:
    match = QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an amount")
    number, suffix = match[1], match[2] or ""
    try:
        if suffix in SUFFIXES:
            return Decimal(number) * SUFFIXES[suffix]
        return Decimal(number + suffix)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not an amount") from None
