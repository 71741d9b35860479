"""Redaction: which parts of a plan's JSON leave the agent."""

import json
from typing import Any

import pytest

from slots.agent.executors.plan_summary import count_drift, has_changes, summarize_plan
from slots.agent.executors.redaction import SENSITIVE, redact_by, redact_plan
from slots.agent.logs.masking import spell

S = "s3cret-value"


@pytest.mark.parametrize(
    ("value", "marks", "kept"),
    [
        ("plain", False, "plain"),
        (S, True, SENSITIVE),
        (None, True, None),
        ({"a": S, "b": 1}, {"a": True}, {"a": SENSITIVE, "b": 1}),
        ({"a": S, "b": 1}, True, SENSITIVE),
        ([{"a": S}, {"a": "x"}], [{"a": True}, {}], [{"a": SENSITIVE}, {"a": "x"}]),
        ([1, 2, 3], [False, True], [1, SENSITIVE, 3]),
        ({"a": {"b": [S]}}, {"a": {"b": [True]}}, {"a": {"b": [SENSITIVE]}}),
        (S, {"a": True}, SENSITIVE),  # marks that do not fit
        ([S], {"a": True}, SENSITIVE),
        ("plain", {}, "plain"),
        ({"a": 1}, [], {"a": 1}),
    ],
)
def test_sensitive_marks_replace_values(value: Any, marks: Any, kept: Any) -> None:
    assert redact_by(value, marks) == kept


def plan() -> dict[str, Any]:
    values = {"name": "n", "password": S, "nested": [{"token": S}]}
    marks = {"password": True, "nested": [{"token": True}]}
    resource = {"address": "a.b", "values": values, "sensitive_values": marks}
    module = {
        "resources": [resource],
        "child_modules": [{"resources": [resource], "child_modules": [{"resources": [resource]}]}],
    }
    outputs = {
        "hidden": {"sensitive": True, "value": S},
        "shown": {"sensitive": False, "value": "v"},
    }
    change = {
        "actions": ["create"],
        "before": None,
        "after": values,
        "before_sensitive": False,
        "after_sensitive": marks,
        "after_unknown": {"id": True},
    }
    update = {
        "actions": ["update"],
        "before": values,
        "after": values,
        "before_sensitive": marks,
        "after_sensitive": marks,
    }
    return {
        "format_version": "1.2",
        "variables": {"password": {"value": S}, "name": {"value": "n"}},
        "planned_values": {"root_module": module, "outputs": outputs},
        "prior_state": {
            "format_version": "1.0",
            "values": {"root_module": module, "outputs": outputs},
        },
        "resource_changes": [
            {"address": "a.b", "change": change},
            {"address": "a.c", "change": {**update, "before_identity": {"id": S}}},
        ],
        "resource_drift": [{"address": "a.b", "change": update}],
        "output_changes": {
            "hidden": {
                "actions": ["create"],
                "before": None,
                "after": S,
                "before_sensitive": False,
                "after_sensitive": True,
            }
        },
        "configuration": {
            "provider_config": {"x": {"expressions": {"password": {"constant_value": S}}}},
            "root_module": {
                "variables": {"password": {"sensitive": True, "default": S}, "name": {}}
            },
        },
    }


def test_marked_value_is_removed_from_the_whole_plan() -> None:
    kept = redact_plan(plan(), [])
    assert S not in json.dumps(kept)
    assert kept["variables"]["name"] == {"value": "n"}
    assert kept["resource_changes"][0]["change"]["after"] == {
        "name": "n",
        "password": SENSITIVE,
        "nested": [{"token": SENSITIVE}],
    }
    assert kept["planned_values"]["outputs"]["shown"]["value"] == "v"
    assert (
        kept["prior_state"]["values"]["root_module"]["child_modules"][0]["resources"][0]["values"][
            "password"
        ]
        == SENSITIVE
    )


def test_unknown_plan_sections_are_dropped() -> None:
    change = {
        "actions": ["create"],
        "after": {"password": S},
        "after_sensitive": {"password": True},
    }
    more = {
        "deferred_changes": [{"resource_change": {"change": change}}],
        "action_invocations": [{"config_values": {"password": S}}],
    }
    kept = redact_plan(
        {**plan(), **more, "timestamp": "2026-01-01T00:00:00Z", "applyable": True}, []
    )
    assert S not in json.dumps(kept)
    assert not set(more) & set(kept) and (kept["timestamp"], kept["applyable"]) == (
        "2026-01-01T00:00:00Z",
        True,
    )


def test_named_secrets_are_masked_in_texts_and_numbers() -> None:
    given = {
        "resource_changes": [
            {
                "address": "a",
                "change": {
                    "actions": ["create"],
                    "after": {"k": "url://u:pw-pw-pw@h", "pin": 4711},
                },
            }
        ]
    }
    text = json.dumps(redact_plan(given, spell(["pw-pw-pw", "4711"])))
    assert "pw-pw-pw" not in text and "4711" not in text


WORDS_OF_A_PLAN = [
    "actions", "delete", "create", "update", "no-op", "change", "before", "after", "address",
    "resource_changes", "resource_drift", "output_changes", "planned_values", "prior_state",
    "variables", "type", "terraform_data", "terraform_data.a", "before_sensitive",
    "after_sensitive", "after_unknown", "replace_paths", "module_address", "previous_address",
    "root_module", "outputs", "format_version",
]  # fmt: skip


def risky_plan() -> dict[str, Any]:
    def entry(name: str, *actions: str) -> dict[str, Any]:
        change = {
            "actions": list(actions), "before": {"input": "kept"}, "after": None,
            "after_unknown": {}, "before_sensitive": {}, "after_sensitive": False,
            "replace_paths": [["input"]],
        }  # fmt: skip
        return {
            "address": f"terraform_data.{name}",
            "module_address": "",
            "type": "terraform_data",
            "name": name,
            "change": change,
        }

    return {
        "resource_changes": [
            entry("a", "delete"),
            entry("b", "delete"),
            entry("c", "delete", "create"),
            entry("d", "no-op"),
        ],
        "resource_drift": [entry("a", "update")],
        "output_changes": {"shown": {"actions": ["update"], "before": "x", "after": "y"}},
    }


@pytest.mark.parametrize("secret", WORDS_OF_A_PLAN)
def test_masking_keeps_actions_and_structure_of_the_plan(secret: str) -> None:
    """Whether it is a named secret or the value of a sensitive variable."""
    named = risky_plan()
    as_variable = {
        **risky_plan(),
        "variables": {"password": {"value": secret}},
        "configuration": {"root_module": {"variables": {"password": {"sensitive": True}}}},
    }
    for kept in (redact_plan(named, spell([secret])), redact_plan(as_variable, [])):
        assert summarize_plan(kept) == {"add": 0, "change": 0, "destroy": 2, "replace": 1}
        for part in ("resource_changes", "resource_drift"):
            for before, after in zip(named[part], kept[part], strict=True):
                assert {key: after[key] for key in before if key != "change"} == {
                    key: before[key] for key in before if key != "change"
                }
                assert set(after["change"]) == set(before["change"])
                assert after["change"]["actions"] == before["change"]["actions"]
                assert after["change"]["replace_paths"] == before["change"]["replace_paths"]
        assert kept["output_changes"]["shown"]["actions"] == ["update"]


def test_secret_keys_below_before_and_after_stay_and_values_are_masked() -> None:
    change = {
        "actions": ["update"],
        "before": {"swordfish": "a swordfish"},
        "after": {"swordfish": ["swordfish"]},
    }
    kept = redact_plan(
        {"resource_changes": [{"address": "a.b", "change": change}]}, spell(["swordfish"])
    )
    assert kept["resource_changes"][0]["change"] == {
        "actions": ["update"], "before": {"swordfish": "a ***"}, "after": {"swordfish": ["***"]},
    }  # fmt: skip


def test_values_that_a_newer_version_adds_to_a_change_are_masked() -> None:
    change = {
        "actions": ["update"],
        "importing": {"id": "swordfish"},
        "as_of_2030": {"deep": ["swordfish"]},
    }
    kept = redact_plan(
        {"resource_changes": [{"address": "a.b", "change": change, "note": "swordfish"}]},
        spell(["swordfish"]),
    )
    assert "swordfish" not in json.dumps(kept)


def test_masked_before_and_after_values_stay_distinguishable() -> None:
    change = {
        "actions": ["update"],
        "before": {"url": "u:old-secret@h", "same": "old-secret", "list": ["old-secret", 1]},
        "after": {"url": "u:new-secret@h", "same": "old-secret", "list": ["new-secret", 1]},
    }
    kept = redact_plan(
        {"resource_changes": [{"address": "a.b", "change": change}]},
        spell(["old-secret", "new-secret"]),
    )
    assert kept["resource_changes"][0]["change"]["before"] == {
        "url": "u:***@h",
        "same": "***",
        "list": ["***", 1],
    }
    assert kept["resource_changes"][0]["change"]["after"] == {
        "url": "u:***@h (changed)", "same": "***", "list": ["*** (changed)", 1],
    }  # fmt: skip


def test_secrets_in_states_outputs_variables_and_checks_are_masked() -> None:
    resource = {
        "address": "a.swordfish",
        "type": "a",
        "name": "swordfish",
        "values": {"x": "swordfish"},
        "sensitive_values": {},
    }
    values = {
        "root_module": {
            "resources": [resource],
            "child_modules": [{"address": "module.m", "resources": [resource]}],
        },
        "outputs": {"o": {"sensitive": False, "value": "swordfish", "type": "string"}},
    }
    given = {
        "planned_values": values,
        "prior_state": {"format_version": "1.0", "values": values},
        "variables": {"v": {"value": "swordfish"}},
        "checks": [
            {
                "address": {"to_display": "check.a"},
                "instances": [{"problems": [{"message": "got swordfish"}]}],
            }
        ],
    }
    kept = redact_plan(given, spell(["swordfish"]))
    text = json.dumps(kept).replace('"a.swordfish"', "").replace('"name": "swordfish"', "")
    assert "swordfish" not in text
    assert kept["planned_values"]["root_module"]["child_modules"][0]["resources"][0]["values"] == {
        "x": "***"
    }


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"resource_changes": 5},
        {"resource_changes": [None, 3]},
        {"planned_values": []},
        {"variables": [1]},
        {"prior_state": "x"},
    ],
)
def test_malformed_plan_json_does_not_crash_redaction(broken: dict[str, Any]) -> None:
    redact_plan(broken, spell(["abc"]))
    summarize_plan(broken)
    has_changes(broken)


@pytest.mark.parametrize(
    ("actions", "kind"),
    [
        (["create"], "add"),
        (["update"], "change"),
        (["delete"], "destroy"),
        (["delete", "create"], "replace"),
        (["create", "delete"], "replace"),
        (["forget"], "destroy"),
    ],
)
def test_plan_summary_counts_actions(actions: list[str], kind: str) -> None:
    summary = summarize_plan(
        {
            "resource_changes": [
                {"change": {"actions": actions}},
                {"change": {"actions": ["no-op"]}},
                {"change": {"actions": ["read"]}},
            ]
        }
    )
    assert summary == {"add": 0, "change": 0, "destroy": 0, "replace": 0} | {kind: 1}


def test_drift_counts_what_differs() -> None:
    assert count_drift(plan()) == 1
    assert has_changes({"output_changes": {"a": {"actions": ["create"]}}})
    assert not has_changes({"resource_changes": [{"change": {"actions": ["no-op"]}}]})


@pytest.mark.parametrize("given", ["hunter2-of-a-variable", {"db": ["hunter2-of-a-variable"]}])
def test_unmarked_value_derived_from_a_sensitive_variable_is_masked(
    given: Any,
) -> None:
    made = plan()
    made["variables"] = {
        "password": {"value": given},
        "region": {"value": "eu-central-1"},
        "short": {"value": "on"},
    }
    made["configuration"] = {
        "root_module": {
            "variables": {
                "password": {"sensitive": True},
                "short": {"sensitive": True},
                "region": {},
            }
        }
    }
    change = {
        "actions": ["update"],
        "before": {"output": "first hunter2-of-a-variable", "on": True},
        "after": {"region": "eu-central-1"},
    }
    made["resource_changes"] = [{"address": "terraform_data.a", "change": change}]
    kept = redact_plan(made, [])
    assert "hunter2" not in json.dumps(kept)
    assert kept["resource_changes"][0]["change"] == {
        "actions": ["update"], "before": {"output": "first ***", "on": True},
        "after": {"region": "eu-central-1"},
    }  # fmt: skip
    assert kept["variables"]["short"] == {"value": SENSITIVE}


def test_sensitive_number_is_masked_in_numbers_and_texts() -> None:
    made = plan()
    made["variables"] = {"account": {"value": 471147114711}, "count": {"value": 3}}
    made["configuration"] = {
        "root_module": {"variables": {"account": {"sensitive": True}, "count": {"sensitive": True}}}
    }
    change = {
        "actions": ["update"],
        "before": {"id": 471147114711, "arn": "arn:471147114711:x", "n": 3},
        "after": {"n": 4},
    }
    made["resource_changes"] = [{"address": "terraform_data.a", "change": change}]
    kept = redact_plan(made, [])
    assert kept["resource_changes"][0]["change"]["before"] == {
        "id": "***",
        "arn": "arn:***:x",
        "n": 3,
    }
