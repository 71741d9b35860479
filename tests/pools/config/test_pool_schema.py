"""JSON Schema of a pool file: it follows the declared fields, and the parser agrees with it."""

import dataclasses
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from jsonschema import Draft202012Validator

from pools.config.approval_spec import ApprovalSpec
from pools.config.fields import Fields, fields_of
from pools.config.roll_spec import RollSpec
from pools.config.spec import (
    FIELDS,
    LeaseSpec,
    Liveness,
    MemberSpec,
    PoolSpec,
    pool_schema,
    read_pool,
)
from pools.config.task_spec import TaskSpec
from pools.providers.base import known_providers, option_readers
from project.kernel.yaml_text import load_yaml

ROOT = Path(__file__).resolve().parents[3]
POD = {"kind": "kubernetes", "template": {"image": "registry.example/agent:1"}}


def validator() -> Draft202012Validator:
    return Draft202012Validator(pool_schema(option_readers()))


def examples() -> Iterator[Any]:
    """Every pool file in the documents, the examples and the sample."""
    yield from parts_of((ROOT / "project/sample/pools.yaml").read_text())
    documents = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    for document in documents:
        lines: list[str] = []
        for line in [*document.read_text().splitlines(), "```"]:
            is_end = line.strip() in ("```", "YAML")
            if is_end or (line.strip() and lines and is_outdented(line, lines)):
                yield from parts_of("\n".join(lines))
                lines = []
            elif lines or "kind: Pool" in line:
                lines.append(line)


def is_outdented(line: str, lines: list[str]) -> bool:
    def indent(text: str) -> int:
        return len(text) - len(text.lstrip())

    return indent(line) < indent(lines[0])


def parts_of(text: str) -> Iterator[Any]:
    for part in re.split(r"(?m)^\s*---\s*$", textwrap.dedent(text)):
        if "kind: Pool" in part:
            yield load_yaml(part)


EXAMPLES = list(examples())


def test_schema_is_served_to_everybody_as_cacheable_json() -> None:
    answer = Client().get("/api/schema/pool.json")
    assert answer.status_code == 200
    assert answer["Content-Type"] == "application/json"
    assert "max-age=3600" in answer["Cache-Control"]
    assert answer.json()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(answer.json())
    again = Client().get("/api/schema/pool.json", headers={"If-None-Match": answer["ETag"]})
    assert again.status_code == 304
    assert Client().post("/api/schema/pool.json").status_code == 405


def test_openapi_component_is_the_schema_without_a_required_name() -> None:
    components = Client().get("/api/schema/?format=json").json()["components"]["schemas"]
    schema = pool_schema(option_readers())
    assert schema.pop("required") == ["name"]
    assert components["PoolConfig"] == schema


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize("config", EXAMPLES, ids=lambda config: config["name"])
def test_examples_and_their_canonical_form_are_accepted(config: Any) -> None:
    assert [e.message for e in validator().iter_errors(config)] == []
    spec, faults = read_pool(config, option_readers())
    assert spec is not None, faults
    assert [e.message for e in validator().iter_errors(spec.as_config())] == []


@pytest.mark.parametrize(
    "config",
    [
        {"slots": 1},
        {"slots": [{"class": "gpu", "accepts": ["train"]}]},
        {"slots": "node", "scaling": "on_demand", "provider": "local"},
        {"slots": 1, "members": {"list": ["a", {"name": "b", "slots": 2}]}},
        {"slots": ["any"], "roll": "manual", "provider": {"kind": "local"}},
        {"slots": ["any"], "provider": POD},
        {"slots": 1, "liveness": {"heartbeat": "1h 30m", "lost": "never"}},
        {"slots": 1, "lease": {"hold": "8 h"}},
        {"slots": ["any"], "approval": {"hold": "always"}},
        {
            "slots": ["any"],
            "provider": "local",
            "scaling": {"policy": "warm", "max_idle": 2, "step": {"up": "all", "down": 1}},
        },
    ],
)
def test_every_form_is_accepted(config: dict[str, Any]) -> None:
    assert [e.message for e in validator().iter_errors({"name": "lab", **config})] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"colour": "red"},
        {"name": "Lab"},
        {"kind": "Claim"},
        {"slots": 0},
        {"slots": 65537},
        {"slots": "nodes"},
        {"slots": ["any", "pln"]},
        {"slots": {"ports": "1-9", "colour": 1}},
        {"slots": {"ports": "1 to 9", "shared": True}},
        {"slots": [{"class": "GPU", "accepts": ["train"]}]},
        {"members": {"min": -1}},
        {"members": {"list": "a"}},
        {"members": {"list": [{"name": "a", "zone": 1}]}},
        {"placement": "tight"},
        {"lease": {"hold": 8}},
        {"lease": {"hold": "8"}},
        {"lease": {"holds": "8h"}},
        {"liveness": {}},
        {"priority": {"max": 100}},
        {"drain": {"limit": "soon"}},
        {"approval": {"needed": 11}},
        {"approval": {"own": "yes"}},
        {"approval": {"hold": "never"}},
        {"task": {"log": "8 megs"}},
        {"task": {"env": {"A": 1}}},
        {"task": {"binary": "../tofu"}},
        {"task": {"git": {"hosts": ["ext::sh"]}}},
        {"roll": "never"},
        {"roll": {"policy": "idle", "within": "1m"}},
        {"description": "x" * 501},
        {"provider": "azure"},
        {"provider": {"kind": "static", "region": "eu"}},
        {"provider": {"kind": "local", "env": {"A": 1}}},
        {"scaling": "wrm", "provider": "local"},
        {"scaling": {"policy": "warm", "idle_for": "1m"}, "provider": "local"},
        {"scaling": {"policy": "fixed", "size": -1}, "provider": "local"},
        {"scaling": {"policy": "warm", "freeze": [{"from": "22:00"}]}, "provider": "local"},
    ],
)
def test_schema_and_parser_refuse_the_same(changes: dict[str, Any]) -> None:
    config = {"name": "lab", "slots": ["any"] if "provider" in changes else 3, **changes}
    assert not validator().is_valid(config)
    assert read_pool(config, option_readers())[1]


def declared(fields: Fields, prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, entry in fields.tree.items():
        found.add(prefix + name)
        inner = entry if isinstance(entry, Fields) else getattr(entry.kind, "fields", None)
        if inner is not None:
            found |= declared(inner, f"{prefix}{name}.")
    return found


def described(schema: dict[str, Any], prefix: str = "") -> set[str]:
    """The named fields, also those of an object that is one of several forms."""
    found: set[str] = set()
    for form in (schema, *schema.get("anyOf", ())):
        for name, inner in form.get("properties", {}).items():
            found |= {prefix + name, *described(inner, f"{prefix}{name}.")}
    return found


def test_schema_has_every_declared_field() -> None:
    schema = pool_schema(option_readers())
    assert declared(FIELDS) <= described(schema)
    assert {path.partition(".")[0] for path in described(schema)} == set(FIELDS.tree)
    forms = schema["properties"]["provider"]["anyOf"][1:]
    assert {
        form["properties"]["kind"]["enum"][0]: set(form["properties"]) - {"kind"} for form in forms
    } == {kind: set(provider.option_fields.tree) for kind, provider in known_providers().items()}


@pytest.mark.parametrize(
    ("spec", "computed"),
    [
        (PoolSpec, {"options"}),
        (MemberSpec, {"own"}),
        (ApprovalSpec, set()),
        (TaskSpec, set()),
        (RollSpec, set()),
        (LeaseSpec, set()),
        (Liveness, set()),
    ],
)
def test_every_attribute_of_a_spec_is_a_declared_field(spec: Any, computed: set[str]) -> None:
    attributes = {each.name for each in dataclasses.fields(spec)}
    assert attributes - {each.attribute for each in fields_of(spec).values()} == computed


def test_every_field_has_a_description_of_one_sentence_or_two() -> None:
    for path, field in FIELDS.items():
        assert field.text.endswith("."), path
        assert len(field.text) <= 130, path
