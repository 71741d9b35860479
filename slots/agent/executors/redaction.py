"""Redacts the JSON of a plan: values that Terraform marks as sensitive, and the values of secrets.

The JSON keeps the form of `show -json`. The configuration is left out, because it may contain
unmarked literals.

Secrets are masked in values only. Keys, actions, addresses and types stay: an approver must see
every change, and a secret with the value "delete" must not hide a change.
"""

from __future__ import annotations

from typing import Container

from ..common.json_types import Json, as_dict, as_list
from ..logs.masking import mask_text, sort_secrets, spell

SENSITIVE = "(sensitive value)"
# All other keys are removed: no rule here redacts the values that a newer version adds.
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

# Keys that identify a resource and its change. Secrets are not masked in their values.
OF_RESOURCE = frozenset({
    "action_reason", "address", "deposed", "deposed_key", "depends_on", "index", "mode",
    "module_address", "name", "previous_address", "provider_name", "resource", "schema_version",
    "tainted", "type",
})  # fmt: skip
OF_CHANGE = frozenset(
    {"actions", "after_sensitive", "after_unknown", "before_sensitive", "replace_paths"}
)
OF_VALUES = frozenset({"sensitive", "sensitive_values", "type"})
CHANGED = " (changed)"  # behind a value that differs only where it is masked
# Fewest characters of a sensitive value that is masked in other places, too. Shorter values occur
# by chance.
SHORTEST = 6


def redact_plan(plan: Json, secrets: list[bytes]) -> Json:
    hidden = sensitive_variables(plan)
    given = as_dict(plan.get("variables"))
    values = {
        text
        for name in hidden
        for text in list_texts(as_dict(given.get(name)).get("value"))
        if len(text.strip()) >= SHORTEST
    }
    secrets = sort_secrets([*secrets, *spell(values)])
    kept = {key: value for key, value in plan.items() if key in KEPT}
    for part in ("resource_changes", "resource_drift"):
        if part in kept:
            kept[part] = [redact_resource_change(entry) for entry in as_list(kept[part])]
    if "output_changes" in kept:
        changes = as_dict(kept["output_changes"])
        kept["output_changes"] = {
            name: redact_change(as_dict(change)) for name, change in changes.items()
        }
    if "planned_values" in kept:
        kept["planned_values"] = redact_values(as_dict(kept["planned_values"]))
    if "prior_state" in kept:
        prior = as_dict(kept["prior_state"])
        kept["prior_state"] = {**prior, "values": redact_values(as_dict(prior.get("values")))}
    if "variables" in kept:
        kept["variables"] = {
            name: {**as_dict(given), "value": SENSITIVE} if name in hidden else given
            for name, given in as_dict(kept["variables"]).items()
        }
    if "checks" in kept and hidden:
        kept["checks"] = [
            {key: value for key, value in as_dict(check).items() if key != "instances"}
            for check in as_list(kept["checks"])
        ]
    return mask_plan(kept, secrets) if secrets else kept


def redact_resource_change(entry: object) -> Json:
    entry = as_dict(entry)
    return (
        {**entry, "change": redact_change(as_dict(entry.get("change")))}
        if "change" in entry
        else entry
    )


def redact_change(change: Json) -> Json:
    kept = dict(change)
    before, after = change.get("before_sensitive", False), change.get("after_sensitive", False)
    for key, marks in (("before", before), ("after", after)):
        if key in kept:
            kept[key] = redact_by(kept[key], marks)
    if "importing" in kept:
        kept["importing"] = {
            key: value for key, value in as_dict(kept["importing"]).items() if key == "id"
        }
    kept.pop("generated_config", None)
    # An identity repeats attributes without marks, so any mark of the resource hides it.
    for key, marks in (("before_identity", before), ("after_identity", after)):
        if key in kept and has_mark(marks):
            kept[key] = SENSITIVE
    return kept


def redact_by(value: object, marks: object) -> object:
    """The value with its marked parts hidden. `marks` has the form of the value; true covers all
    values below it. If the forms differ and a mark exists, the whole value is hidden.
    """
    if marks is True:
        return None if value is None else SENSITIVE
    if not marks or value is None:
        return value
    if isinstance(value, dict) and isinstance(marks, dict):
        return {key: redact_by(each, marks.get(key, False)) for key, each in value.items()}
    if isinstance(value, list) and isinstance(marks, list):
        return [
            redact_by(each, marks[number] if number < len(marks) else False)
            for number, each in enumerate(value)
        ]
    return SENSITIVE if has_mark(marks) else value


def has_mark(marks: object) -> bool:
    if isinstance(marks, dict):
        return any(map(has_mark, marks.values()))
    if isinstance(marks, list):
        return any(map(has_mark, marks))
    return bool(marks)


def redact_values(values: Json) -> Json:
    """Redact `planned_values` or the values of a state."""
    kept = dict(values)
    if "outputs" in kept:
        kept["outputs"] = {
            name: redact_output(as_dict(output))
            for name, output in as_dict(kept["outputs"]).items()
        }
    if "root_module" in kept:
        kept["root_module"] = redact_module(as_dict(kept["root_module"]))
    return kept


def redact_output(output: Json) -> Json:
    return (
        {**output, "value": SENSITIVE} if output.get("sensitive") and "value" in output else output
    )


def redact_module(module: Json) -> Json:
    kept = dict(module)
    if "resources" in kept:
        kept["resources"] = [
            redact_resource(as_dict(resource)) for resource in as_list(kept["resources"])
        ]
    if "child_modules" in kept:
        kept["child_modules"] = [
            redact_module(as_dict(child)) for child in as_list(kept["child_modules"])
        ]
    if "outputs" in kept:
        kept["outputs"] = {
            name: redact_output(as_dict(output))
            for name, output in as_dict(kept["outputs"]).items()
        }
    return kept


def redact_resource(resource: Json) -> Json:
    kept = dict(resource)
    marks = kept.get("sensitive_values", False)
    if "values" in kept:
        kept["values"] = redact_by(kept["values"], marks)
    if "identity" in kept and has_mark(marks):
        kept["identity"] = SENSITIVE
    return kept


def sensitive_variables(plan: Json) -> set[str]:
    root = as_dict(as_dict(plan.get("configuration")).get("root_module"))
    declared = {
        name
        for name, variable in as_dict(root.get("variables")).items()
        if as_dict(variable).get("sensitive")
    }
    marked = {
        name
        for name, given in as_dict(plan.get("variables")).items()
        if as_dict(given).get("sensitive")
    }
    return declared | marked


def list_texts(value: object) -> list[str]:
    """All strings and numbers in a value. Providers may derive unmarked values from them."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return [str(value)]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in list_texts(each)]


def mask_plan(plan: Json, secrets: list[bytes]) -> Json:
    """A redacted plan with the secrets masked in every value."""
    kept = dict(plan)
    for part in ("resource_changes", "resource_drift"):
        if part in kept:
            kept[part] = [
                mask_resource_change(as_dict(entry), secrets) for entry in as_list(kept[part])
            ]
    if "output_changes" in kept:
        kept["output_changes"] = {
            name: mask_change(as_dict(change), secrets)
            for name, change in as_dict(kept["output_changes"]).items()
        }
    if "planned_values" in kept:
        kept["planned_values"] = mask_module_values(as_dict(kept["planned_values"]), secrets)
    if "prior_state" in kept:
        prior = as_dict(kept["prior_state"])
        kept["prior_state"] = {
            **prior,
            "values": mask_module_values(as_dict(prior.get("values")), secrets),
        }
    if "variables" in kept:
        kept["variables"] = {
            name: mask_except((), as_dict(given), secrets)
            for name, given in as_dict(kept["variables"]).items()
        }
    if "checks" in kept:
        kept["checks"] = [mask_check(as_dict(check), secrets) for check in as_list(kept["checks"])]
    return kept


def mask_resource_change(entry: Json, secrets: list[bytes]) -> Json:
    kept = mask_except({*OF_RESOURCE, "change"}, entry, secrets)
    if "change" in entry:
        kept["change"] = mask_change(as_dict(entry["change"]), secrets)
    return kept


def mask_change(change: Json, secrets: list[bytes]) -> Json:
    kept = mask_except(OF_CHANGE, change, secrets)
    if "before" in kept and "after" in kept:
        kept["after"] = mark_changed(
            change["before"], change["after"], kept["before"], kept["after"]
        )
    return kept


def mark_changed(
    before: object, after: object, masked_before: object, masked_after: object
) -> object:
    """`masked_after`, with a note on each value that changes and looks unchanged when masked."""
    if masked_before != masked_after or before == after:
        return masked_after  # the change is visible, or there is none
    if isinstance(before, dict) and isinstance(after, dict):
        old, new = as_dict(masked_before), as_dict(masked_after)
        return {key: mark_changed(before[key], after[key], old[key], new[key]) for key in after}
    if isinstance(before, list) and isinstance(after, list):
        masked = as_list(masked_before), as_list(masked_after)
        return [mark_changed(*each) for each in zip(before, after, *masked)]
    return f"{masked_after}{CHANGED}"


def mask_module_values(values: Json, secrets: list[bytes]) -> Json:
    kept = mask_except(("outputs", "root_module"), values, secrets)
    if "outputs" in kept:
        kept["outputs"] = mask_outputs(as_dict(kept["outputs"]), secrets)
    if "root_module" in kept:
        kept["root_module"] = mask_module(as_dict(kept["root_module"]), secrets)
    return kept


def mask_module(module: Json, secrets: list[bytes]) -> Json:
    kept = mask_except(("address", "resources", "child_modules", "outputs"), module, secrets)
    if "resources" in kept:
        kept["resources"] = [
            mask_except({*OF_RESOURCE, *OF_VALUES}, as_dict(each), secrets)
            for each in as_list(kept["resources"])
        ]
    if "child_modules" in kept:
        kept["child_modules"] = [
            mask_module(as_dict(child), secrets) for child in as_list(kept["child_modules"])
        ]
    if "outputs" in kept:
        kept["outputs"] = mask_outputs(as_dict(kept["outputs"]), secrets)
    return kept


def mask_outputs(outputs: Json, secrets: list[bytes]) -> Json:
    return {
        name: mask_except(OF_VALUES, as_dict(output), secrets) for name, output in outputs.items()
    }


def mask_check(check: Json, secrets: list[bytes]) -> Json:
    kept = dict(check)
    if "instances" in kept:
        instances = [as_dict(each) for each in as_list(kept["instances"])]
        kept["instances"] = [
            mask_except(("address", "status"), each, secrets) for each in instances
        ]
    return kept


def mask_except(names: Container[str], given: Json, secrets: list[bytes]) -> Json:
    """Mask the values of all keys except `names`, also of keys that a newer version adds."""
    return {
        key: value if key in names else mask_below(value, secrets) for key, value in given.items()
    }


def mask_below(value: object, secrets: list[bytes]) -> object:
    """Mask strings and numbers. Keys stay: two masked keys would become one, and attribute names
    are not secret.
    """
    if isinstance(value, str):
        return mask_text(value, secrets)
    if isinstance(value, dict):
        return {key: mask_below(each, secrets) for key, each in value.items()}
    if isinstance(value, list):
        return [mask_below(each, secrets) for each in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        # A secret of digits may be a number in the JSON.
        return "***" if str(value).encode() in secrets else value
    return value
