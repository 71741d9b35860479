"""Finds the values of sensitive variables before Terraform runs, because its log shows values that
a provider derives from them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Iterator, Mapping

from ..common.json_types import Json, as_dict, as_list
from .hcl import LINE, HclToken, list_literals, read_assignments, read_variables, tokenize
from .redaction import SHORTEST, list_texts

CONFIGURATION = (".tf", ".tofu")
VALUES = (".auto.tfvars", ".auto.tfvars.json")
ALWAYS = ("terraform.tfvars", "terraform.tfvars.json")
IN_ENVIRONMENT = "TF_VAR_"
LARGEST = 1_000_000  # characters of a file
MAX_CHARACTERS = 4_000_000  # characters of all files


def find_sensitive(
    folder: Path, top: Path, variables: Mapping[str, object], environment: dict[str, str]
) -> list[str]:
    """Values of the variables that the root module in `folder` declares as sensitive.

    The values come from the task's `variables`, from `environment`, from defaults and from variable
    files. Files outside of `top` are not read.
    """
    defaults: dict[str, list[str]] = {}
    assigned: dict[str, list[str]] = {}
    for name, text in read_files(folder, top):
        if name.endswith((".tf.json", ".tofu.json")):
            collect_json_variables(text, defaults)
        elif name.endswith(CONFIGURATION):
            collect_variables(text, defaults)
        elif name.endswith(".json"):
            for key, value in as_dict(parse(text)).items():
                assigned.setdefault(key, []).extend(list_texts(value))
        else:
            for key, tokens in read_assignments(list(tokenize(text))).items():
                assigned.setdefault(key, []).extend(list_literals(tokens))
    found = []
    for name, values in defaults.items():
        given = environment.get(f"{IN_ENVIRONMENT}{name}", "")
        inside = list_literals(list(tokenize(given))) if given[:1] in ("[", "{") else []
        found += [
            *values,
            *assigned.get(name, ()),
            *list_texts(variables.get(name)),
            given,
            *inside,
        ]
    return list(dict.fromkeys(value for value in found if len(value.strip()) >= SHORTEST))


def collect_variables(text: str, defaults: dict[str, list[str]]) -> None:
    for block in read_variables(text):
        if is_true(block.values.get("sensitive", [])):
            defaults.setdefault(block.label, []).extend(
                list_literals(block.values.get("default", []))
            )


def is_true(tokens: list[HclToken]) -> bool:
    return [token.text for token in tokens if token.kind != LINE and token.text not in "()"] == [
        "true"
    ]


def collect_json_variables(text: str, defaults: dict[str, list[str]]) -> None:
    """Add the sensitive variables of a JSON file. Blocks are objects or lists of objects."""
    for part in as_items(parse(text)):
        for blocks in as_items(part.get("variable")):
            for name, block in blocks.items():
                for each in as_items(block):
                    if each.get("sensitive") in (True, "true"):
                        defaults.setdefault(name, []).extend(list_texts(each.get("default")))


def as_items(value: object) -> list[Json]:
    items = [value] if isinstance(value, dict) else as_list(value)
    return [each for each in items if isinstance(each, dict)]


def parse(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None  # Terraform reports the error itself


def read_files(folder: Path, top: Path) -> Iterator[tuple[str, str]]:
    inside, left = os.path.realpath(top) + os.sep, MAX_CHARACTERS
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        name = path.name
        is_wanted = name in ALWAYS or name.endswith(
            (*CONFIGURATION, *VALUES, ".tf.json", ".tofu.json")
        )
        if not is_wanted or not path.is_file() or not os.path.realpath(path).startswith(inside):
            continue
        with path.open(errors="replace") as file:
            text = file.read(min(LARGEST, left))
        left -= len(text)
        yield name, text
