"""What Terraform marks as sensitive does not leave this machine; nor do secrets by value.

The JSON keeps the form of `show -json`. Configuration is left out: it may hold literals that nothing marks.
"""

from __future__ import annotations

from typing import Any

from .masking import mask_text, spell

SENSITIVE = "(sensitive value)"
# Nothing else is let through: what a newer version adds may hold values that we do not know how to redact.
KEPT = (
    "format_version",
    "terraform_version",
    "resource_changes",
    "resource_drift",
    "output_changes",
    "planned_values",
    "prior_state",
    "variables",
    "checks",
    "relevant_attributes",
    "timestamp",
    "applyable",
    "complete",
    "errored",
)


SHORTEST = 6  # characters of a sensitive variable's value that is looked for elsewhere; shorter ones stand everywhere


def redact_plan(plan: dict[str, Any], secrets: list[bytes]) -> dict[str, Any]:
    hidden = sensitive_variables(plan)
    given = as_dict(plan.get("variables"))
    values = {text for name in hidden for text in list_texts(as_dict(given.get(name)).get("value")) if len(text.strip()) >= SHORTEST}
    secrets = sorted({*secrets, *spell(values)}, key=lambda secret: (-len(secret), secret))
    kept = {key: value for key, value in plan.items() if key in KEPT}
    for part in ("resource_changes", "resource_drift"):
        if part in kept:
            kept[part] = [redact_resource_change(entry) for entry in as_list(kept[part])]
    if "output_changes" in kept:
        changes = as_dict(kept["output_changes"])
        kept["output_changes"] = {name: redact_change(as_dict(change)) for name, change in changes.items()}
    if "planned_values" in kept:
        kept["planned_values"] = redact_values(as_dict(kept["planned_values"]))
    if "prior_state" in kept:
        prior = as_dict(kept["prior_state"])
        kept["prior_state"] = {**prior, "values": redact_values(as_dict(prior.get("values")))}
    if "variables" in kept:
        kept["variables"] = {
            name: {**as_dict(given), "value": SENSITIVE} if name in hidden else given for name, given in as_dict(kept["variables"]).items()
        }
    if "checks" in kept and hidden:
        kept["checks"] = [{key: value for key, value in as_dict(check).items() if key != "instances"} for check in as_list(kept["checks"])]
    return as_dict(mask_all(kept, secrets)) if secrets else kept


def redact_resource_change(entry: Any) -> dict[str, Any]:
    entry = as_dict(entry)
    return {**entry, "change": redact_change(as_dict(entry.get("change")))} if "change" in entry else entry


def redact_change(change: dict[str, Any]) -> dict[str, Any]:
    kept = dict(change)
    before, after = change.get("before_sensitive", False), change.get("after_sensitive", False)
    for key, marks in (("before", before), ("after", after)):
        if key in kept:
            kept[key] = redact_by(kept[key], marks)
    if "importing" in kept:
        kept["importing"] = {key: value for key, value in as_dict(kept["importing"]).items() if key == "id"}
    kept.pop("generated_config", None)
    # An identity repeats attributes, without marks: shown only where nothing of the resource is marked.
    for key, marks in (("before_identity", before), ("after_identity", after)):
        if key in kept and has_mark(marks):
            kept[key] = SENSITIVE
    return kept


def redact_by(value: Any, marks: Any) -> Any:
    """`marks` has the form of the value, with true where it is sensitive; one true covers all below it.

    A form that does not fit the value says that something is sensitive but not what: all of it is hidden.
    """
    if marks is True:
        return None if value is None else SENSITIVE
    if not marks or value is None:
        return value
    if isinstance(value, dict) and isinstance(marks, dict):
        return {key: redact_by(one, marks.get(key, False)) for key, one in value.items()}
    if isinstance(value, list) and isinstance(marks, list):
        return [redact_by(one, marks[number] if number < len(marks) else False) for number, one in enumerate(value)]
    return SENSITIVE if has_mark(marks) else value


def has_mark(marks: Any) -> bool:
    if isinstance(marks, dict):
        return any(has_mark(one) for one in marks.values())
    if isinstance(marks, list):
        return any(has_mark(one) for one in marks)
    return bool(marks)


def redact_values(values: dict[str, Any]) -> dict[str, Any]:
    """planned_values, and the values of a state."""
    kept = dict(values)
    if "outputs" in kept:
        kept["outputs"] = {name: redact_output(as_dict(output)) for name, output in as_dict(kept["outputs"]).items()}
    if "root_module" in kept:
        kept["root_module"] = redact_module(as_dict(kept["root_module"]))
    return kept


def redact_output(output: dict[str, Any]) -> dict[str, Any]:
    return {**output, "value": SENSITIVE} if output.get("sensitive") and "value" in output else output


def redact_module(module: dict[str, Any]) -> dict[str, Any]:
    kept = dict(module)
    if "resources" in kept:
        kept["resources"] = [redact_resource(as_dict(resource)) for resource in as_list(kept["resources"])]
    if "child_modules" in kept:
        kept["child_modules"] = [redact_module(as_dict(child)) for child in as_list(kept["child_modules"])]
    if "outputs" in kept:
        kept["outputs"] = {name: redact_output(as_dict(output)) for name, output in as_dict(kept["outputs"]).items()}
    return kept


def redact_resource(resource: dict[str, Any]) -> dict[str, Any]:
    kept = dict(resource)
    marks = kept.get("sensitive_values", False)
    if "values" in kept:
        kept["values"] = redact_by(kept["values"], marks)
    if "identity" in kept and has_mark(marks):
        kept["identity"] = SENSITIVE
    return kept


def sensitive_variables(plan: dict[str, Any]) -> set[str]:
    root = as_dict(as_dict(plan.get("configuration")).get("root_module"))
    declared = {name for name, variable in as_dict(root.get("variables")).items() if as_dict(variable).get("sensitive")}
    marked = {name for name, given in as_dict(plan.get("variables")).items() if as_dict(given).get("sensitive")}
    return declared | marked


def list_texts(value: Any) -> list[str]:
    """All texts and numbers in it. What a provider makes of a sensitive variable, it need not mark."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return [str(value)]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in list_texts(one)]


def mask_all(value: Any, secrets: list[bytes]) -> Any:
    if isinstance(value, str):
        return mask_text(value, secrets)
    if isinstance(value, dict):
        return {mask_text(key, secrets): mask_all(one, secrets) for key, one in value.items()}
    if isinstance(value, list):
        return [mask_all(one, secrets) for one in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return mask_number(value, secrets)
    return value


def mask_number(value: float, secrets: list[bytes]) -> Any:
    """A secret of digits may stand in the JSON as a number."""
    return "***" if str(value).encode() in secrets else value


def as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
