"""What stands under `provider:` of a pool of pods: read as a whole, every fault with its field,
answered in canonical form. Pure.

The rules are those of Kubernetes itself, so that what is wrong is said before a cluster is asked;
what only the cluster knows (quotas, admission, which service accounts there are) it says in a dry
run, see dry_run.py.
"""

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import urlsplit

from pools.config.durations import parse_duration
from pools.config.fields import Fields, Option
from pools.config.parsing import (
    Described,
    Faults,
    Flag,
    Text,
    field_path,
    kind_of,
    read_flag,
    read_mapping,
    read_text,
    show_value,
    suggest_names,
)
from pools.providers.kubernetes.names import OURS, is_reserved

FIELDS = Fields(
    {
        "context": Option(Text(253), "Context of the kubeconfig. Default: the current one."),
        "namespace": Option(Text(63), "Namespace of the pods."),
        "url": Option(Text(500), "Address of Berth as pods reach it."),
        "template": Option(
            Described({"type": "object"}), "Template of the pods.", is_required=True
        ),
        "agent": Option(Flag(), "Whether members run the Berth agent."),
    }
)
TEMPLATE_FIELDS = (
    "image", "command", "args", "env", "resources", "node_selector", "tolerations",
    "service_account", "image_pull_secrets", "labels", "annotations", "grace", "user",
    "writable_root",
)  # fmt: skip
TOLERATION_FIELDS = ("key", "operator", "value", "effect", "tolerationSeconds")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

# Seconds: a pod that is evicted lets its task end first, and an apply may take long.
DEFAULT_GRACE = 3600
LONGEST_GRACE = 86400
DEFAULT_USER = 10002  # that of deploy/agent.Dockerfile
LARGEST_USER = 2**31 - 1
MOST_ENTRIES = 256
LONGEST_TEXT = 32_768
LARGEST_ANNOTATIONS = 262_144

DNS_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
DNS_NAME = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
)
KEY_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
# registry.example:5000/team/name:tag@sha256:...; names in small letters, as registries want them.
IMAGE = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?/)?"
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[A-Za-z0-9+._-]+:[0-9a-fA-F]{32,})?"
)
QUANTITY = re.compile(
    r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]+)?"
)
SUFFIXES = {"m": Decimal("0.001")}
SUFFIXES |= {
    suffix: Decimal(1000 ** (i + 1)) for i, suffix in enumerate(("k", "M", "G", "T", "P", "E"))
}
SUFFIXES |= {
    suffix: Decimal(1024 ** (i + 1))
    for i, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
}

LABEL_RULE = (
    "Up to 63 letters, digits, dashes, underscores and dots, the first and last a letter or digit; "
    "before it a domain and a slash."
)
VALUE_RULE = (
    "Up to 63 letters, digits, dashes, underscores and dots; the first and last a letter or digit."
)
NAME_RULE = "Small letters, digits and dashes, up to 63; the first and last a letter or digit."


def read_options(options: Mapping[str, Any], where: str, faults: Faults) -> Mapping[str, Any]:
    given = read_mapping(options, where, ("kind", *FIELDS), faults)
    read: dict[str, Any] = {}
    for name, pattern, rule in (("context", None, ""), ("namespace", DNS_LABEL, NAME_RULE)):
        text = read_text(given, where, name, faults, 253)
        if text and pattern is not None and not pattern.fullmatch(text):
            faults.add(
                field_path(where, name), f"{show_value(text)} is not a name of Kubernetes.", rule
            )
        elif text:
            read[name] = text
    if url := _read_url(given, where, faults):
        read["url"] = url
    if given.get("agent") is not None and not read_flag(given, where, "agent", faults):
        read["agent"] = False
    if given.get("template") is None:
        faults.add(
            field_path(where, "template"),
            "It is not said what its pods are made of.",
            "Write template: {image: registry.example/agent:1}.",
        )
    else:
        read["template"] = _read_template(given["template"], field_path(where, "template"), faults)
    return read


def _read_url(given: Mapping[str, Any], where: str, faults: Faults) -> str:
    url = read_text(given, where, "url", faults, 500)
    if not url:
        return ""
    parts = urlsplit(url)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.username
        or parts.query
        or parts.fragment
    ):
        faults.add(
            field_path(where, "url"),
            f"{show_value(url)} is no address of Berth.",
            "Write it as pods reach it, like https://berth.example.com/.",
        )
        return ""
    return url


def _read_template(value: Any, where: str, faults: Faults) -> dict[str, Any]:
    given = read_mapping(value, where, TEMPLATE_FIELDS, faults)
    read: dict[str, Any] = {"image": _read_image(given, where, faults)}
    for name in ("command", "args"):
        read[name] = _read_words(given.get(name), field_path(where, name), faults)
    read["env"] = _read_env(given.get("env"), field_path(where, "env"), faults)
    read["resources"] = _read_resources(
        given.get("resources"), field_path(where, "resources"), faults
    )
    read["node_selector"] = _read_labels(
        given.get("node_selector"), field_path(where, "node_selector"), faults, is_ours=False
    )
    read["tolerations"] = _read_tolerations(
        given.get("tolerations"), field_path(where, "tolerations"), faults
    )
    read["service_account"] = _read_object_name(given, where, "service_account", faults)
    read["image_pull_secrets"] = _read_names(
        given.get("image_pull_secrets"), field_path(where, "image_pull_secrets"), faults
    )
    read["labels"] = _read_labels(
        given.get("labels"), field_path(where, "labels"), faults, is_ours=True
    )
    read["annotations"] = _read_annotations(
        given.get("annotations"), field_path(where, "annotations"), faults
    )
    read["grace"] = _read_grace(given.get("grace"), field_path(where, "grace"), faults)
    read["user"] = _read_number(
        given.get("user"), field_path(where, "user"), LARGEST_USER, DEFAULT_USER, faults
    )
    read["writable_root"] = read_flag(given, where, "writable_root", faults)
    kept = {"image": read["image"], "grace": read["grace"]}
    kept |= {
        name: read[name]
        for name in TEMPLATE_FIELDS
        if name not in kept and read[name] and name != "user"
    }
    return kept | ({"user": read["user"]} if read["user"] != DEFAULT_USER else {})


def _read_image(given: Mapping[str, Any], where: str, faults: Faults) -> str:
    image = read_text(given, where, "image", faults, 500)
    if given.get("image") is None or (isinstance(given["image"], str) and not image):
        faults.add(
            field_path(where, "image"),
            "The image is missing.",
            "Name one with python3, like registry.example/berth-agent:1.",
        )
    elif image and not IMAGE.fullmatch(image):
        faults.add(
            field_path(where, "image"),
            f"{show_value(image)} is not the name of an image.",
            "Write it like registry.example/team/agent:1.4.",
        )
    return image


def _read_words(value: Any, where: str, faults: Faults) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MOST_ENTRIES:
        faults.add(
            where,
            f"This is {kind_of(value)}, not a list of up to {MOST_ENTRIES} words.",
            "Write it like [python3, /agent.pyz].",
        )
        return []
    return [word for i, word in enumerate(value) if _is_text(word, f"{where}[{i}]", faults)]


def _read_env(value: Any, where: str, faults: Faults) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, text in _pairs(value, where, faults, "{TF_LOG: INFO}"):
        if not ENV_NAME.fullmatch(name):
            faults.add(
                field_path(where, show_value(name)),
                "This is not the name of a variable.",
                "Letters, digits, underscores; the first no digit.",
            )
        elif name.startswith("BERTH_"):
            faults.add(
                field_path(where, name),
                "Names that begin with BERTH_ are set by Berth.",
                "Choose another name.",
            )
        elif _is_text(text, field_path(where, name), faults):
            found[name] = text
    return found


def _read_resources(value: Any, where: str, faults: Faults) -> dict[str, dict[str, str]]:
    given = read_mapping({} if value is None else value, where, ("requests", "limits"), faults)
    found = {
        kind: _read_quantities(given.get(kind), field_path(where, kind), faults)
        for kind in ("requests", "limits")
    }
    for name, text in found["requests"].items():
        if name in found["limits"] and amount_of(text) > amount_of(found["limits"][name]):
            faults.add(
                field_path(where, f"requests.{name}"),
                f"{text} is more than the limit, {found['limits'][name]}.",
                "Lower it, or raise the limit.",
            )
    return {kind: quantities for kind, quantities in found.items() if quantities}


def _read_quantities(value: Any, where: str, faults: Faults) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, amount in _pairs(value, where, faults, "{cpu: 500m, memory: 1Gi}"):
        if name not in ("cpu", "memory", "ephemeral-storage") and not (
            name.startswith("hugepages-") or "/" in name
        ):
            way_out = suggest_names(name, ("cpu", "memory", "ephemeral-storage"))
            faults.add(
                field_path(where, show_value(name)),
                "This is not a resource.",
                f"{way_out} Those of devices have a domain, like nvidia.com/gpu.",
            )
            continue
        text = (
            str(amount)
            if isinstance(amount, int | float) and not isinstance(amount, bool)
            else amount
        )
        if not isinstance(text, str) or not QUANTITY.fullmatch(text):
            faults.add(
                field_path(where, name),
                f"{show_value(amount)} is not an amount.",
                "Write it like 2, 500m, 512Mi or 4Gi.",
            )
        else:
            found[name] = text
    return found


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


def _read_labels(value: Any, where: str, faults: Faults, *, is_ours: bool) -> dict[str, str]:
    """Of the pod, or of the nodes it may run on."""
    found: dict[str, str] = {}
    for name, text in _pairs(value, where, faults, "{team: infra}"):
        if not _is_key(name, where, faults):
            continue
        if is_ours and is_reserved(name):
            faults.add(
                field_path(where, name),
                "Berth knows its pods by this label.",
                "Choose another name.",
            )
        elif not isinstance(text, str):
            faults.add(
                field_path(where, name), f"This is {kind_of(text)}, not text.", "Put it in quotes."
            )
        elif not VALUE.fullmatch(text):
            faults.add(
                field_path(where, name),
                f"{show_value(text)} is not the value of a label.",
                VALUE_RULE,
            )
        else:
            found[name] = text
    return found


def _read_annotations(value: Any, where: str, faults: Faults) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, text in _pairs(value, where, faults, "{owner: infra@example.com}"):
        if not _is_key(name, where, faults):
            continue
        if name.startswith(OURS):
            faults.add(
                field_path(where, name),
                "Annotations of this domain are written by Berth.",
                "Choose another name.",
            )
        elif _is_text(text, field_path(where, name), faults):
            found[name] = text
    if (
        sum(len(name.encode()) + len(text.encode()) for name, text in found.items())
        > LARGEST_ANNOTATIONS
    ):
        faults.add(
            where, "They are too long together.", f"Use {LARGEST_ANNOTATIONS:,} bytes at most."
        )
        return {}
    return found


def _read_tolerations(value: Any, where: str, faults: Faults) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MOST_ENTRIES:
        example = "[{key: dedicated, operator: Equal, value: ci, effect: NoSchedule}]"
        faults.add(
            where,
            f"This is {kind_of(value)}, not a list of tolerations.",
            f"Write it like {example}.",
        )
        return []
    return [_read_toleration(item, f"{where}[{i}]", faults) for i, item in enumerate(value)]


def _read_toleration(value: Any, where: str, faults: Faults) -> dict[str, Any]:
    given = read_mapping(value, where, TOLERATION_FIELDS, faults)
    found: dict[str, Any] = {
        name: text
        for name in ("key", "operator", "value", "effect")
        if (text := read_text(given, where, name, faults, 317))
    }
    if "key" in found:
        _is_key(found["key"], where, faults)
    if found.get("operator", "Equal") not in ("Equal", "Exists"):
        faults.add(
            field_path(where, "operator"),
            f"{show_value(found['operator'])} is not known here.",
            "Write Equal or Exists.",
        )
    if found.get("operator") == "Exists" and "value" in found:
        faults.add(
            field_path(where, "value"),
            "Exists asks for no value.",
            "Leave it out, or write operator: Equal.",
        )
    if "key" not in found and found.get("operator") != "Exists":
        faults.add(
            where,
            "It tolerates nothing: it has no key.",
            "Write a key, or operator: Exists for all of them.",
        )
    if "value" in found and not VALUE.fullmatch(found["value"]):
        faults.add(
            field_path(where, "value"),
            f"{show_value(found['value'])} is not the value of a taint.",
            VALUE_RULE,
        )
    if "effect" in found and found["effect"] not in EFFECTS:
        faults.add(
            field_path(where, "effect"),
            f"{show_value(found['effect'])} is not known here.",
            suggest_names(found["effect"], EFFECTS),
        )
    if given.get("tolerationSeconds") is not None:
        found["tolerationSeconds"] = _read_number(
            given["tolerationSeconds"], field_path(where, "tolerationSeconds"), 2**31, 0, faults
        )
        if found.get("effect") != "NoExecute":
            faults.add(
                field_path(where, "tolerationSeconds"),
                "This is for NoExecute only.",
                "Leave it out, or write effect: NoExecute.",
            )
    return found


def _read_object_name(given: Mapping[str, Any], where: str, name: str, faults: Faults) -> str:
    text = read_text(given, where, name, faults, 253)
    if text and not DNS_NAME.fullmatch(text):
        faults.add(
            field_path(where, name),
            f"{show_value(text)} is not a name of Kubernetes.",
            "Small letters, digits, dashes and dots.",
        )
        return ""
    return text


def _read_names(value: Any, where: str, faults: Faults) -> list[str]:
    names = _read_words(value, where, faults)
    for i, name in enumerate(names):
        if not DNS_NAME.fullmatch(name):
            faults.add(
                f"{where}[{i}]",
                f"{show_value(name)} is not a name of Kubernetes.",
                "Small letters, digits, dashes and dots.",
            )
    return names


def _read_grace(value: Any, where: str, faults: Faults) -> int:
    if (
        isinstance(value, str)
        and (seconds := parse_duration(value)) is not None
        and seconds == int(seconds)
    ):
        value = int(seconds)
    return _read_number(
        value,
        where,
        LONGEST_GRACE,
        DEFAULT_GRACE,
        faults,
        " Seconds, or a length of time like 30m.",
    )


def _read_number(
    value: Any, where: str, high: int, default: int, faults: Faults, more: str = ""
) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high:
        faults.add(
            where,
            f"{show_value(value)} is not a whole number from 0 to {high}.",
            f"Use one of them.{more}",
        )
        return default
    return value


def _pairs(value: Any, where: str, faults: Faults, example: str) -> list[tuple[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, Mapping) or len(value) > MOST_ENTRIES:
        faults.add(
            where,
            f"This is {kind_of(value)}; it is up to {MOST_ENTRIES} names with values.",
            f"Write it like {example}.",
        )
        return []
    found = []
    for name, item in value.items():
        if isinstance(name, str):
            found.append((name, item))
        else:
            faults.add(
                field_path(where, show_value(name)),
                f"This name is {kind_of(name)}, not text.",
                "Put it in quotes.",
            )
    return found


def _is_text(value: Any, where: str, faults: Faults) -> bool:
    if not isinstance(value, str):
        faults.add(where, f"This is {kind_of(value)}, not text.", "Put it in quotes.")
    elif len(value) > LONGEST_TEXT or "\x00" in value:
        faults.add(
            where,
            "This is too long or holds a NUL character.",
            f"Use {LONGEST_TEXT:,} characters at most.",
        )
    else:
        return True
    return False


def _is_key(name: str, where: str, faults: Faults) -> bool:
    domain, slash, last = name.rpartition("/")
    if KEY_NAME.fullmatch(last) and (not slash or DNS_NAME.fullmatch(domain)):
        return True
    faults.add(
        field_path(where, show_value(name)),
        "This is not a name of a label or annotation.",
        LABEL_RULE,
    )
    return False
