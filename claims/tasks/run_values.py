"""Types of the values in the field `run` of a claim: commands, addresses of git, folders, files and
names of secrets. Each reads its value, adds a fault for a wrong one, and has its JSON Schema.
"""

import re
from collections.abc import Mapping

from claims.tasks.git_urls import LONGEST_URL, URL_RULE, is_git_url
from claims.tasks.source_paths import LONGEST_PATH, why_not_path
from pools.config.parsing import (
    Faults,
    Schema,
    ValueType,
    field_path,
    kind_of,
    show_value,
)
from pools.config.task_spec import OURS

LONGEST_COMMAND = 8_000
MOST_FILES = 200
MOST_TEXT = 1_000_000  # bytes of inline files
SECRET = re.compile(rf"(?!{OURS})[A-Za-z_][A-Za-z0-9_]{{0,62}}")


class Command(ValueType[str]):
    def read(self, value: object, where: str, faults: Faults) -> str | None:
        if not isinstance(value, str) or not value.strip():
            what = "empty" if value == "" else kind_of(value)
            faults.add(where, f"This is {what}, not a command.", "Put it in quotes.")
        elif len(value) > LONGEST_COMMAND or "\x00" in value:
            faults.add(
                where,
                "The command is too long or contains a NUL character.",
                f"Use at most {LONGEST_COMMAND} characters, or a file of the source.",
            )
        else:
            return value
        return None

    def schema(self) -> Schema:
        return {"type": "string", "maxLength": LONGEST_COMMAND}


class GitUrl(ValueType[str]):
    def read(self, value: object, where: str, faults: Faults) -> str | None:
        if is_git_url(value):
            return value
        faults.add(where, f"{show_value(value)} is not a valid git URL.", URL_RULE)
        return None

    def schema(self) -> Schema:
        return {"type": "string", "maxLength": LONGEST_URL}


class SourceFolder(ValueType[str]):
    def read(self, value: object, where: str, faults: Faults) -> str | None:
        if value in ("", "."):
            return ""
        if isinstance(value, str) and not why_not_path(path := value.rstrip("/")):
            return path
        fault = f"{show_value(value)} is not a folder inside the source."
        faults.add(where, fault, "Write it like envs/prod.")
        return None

    def schema(self) -> Schema:
        return {"type": "string", "maxLength": LONGEST_PATH}


class Files(ValueType[tuple[tuple[str, str], ...]]):
    """Texts by path, sorted."""

    def read(self, value: object, where: str, faults: Faults) -> tuple[tuple[str, str], ...] | None:
        if not isinstance(value, Mapping) or not value:
            what = "empty" if isinstance(value, Mapping) else kind_of(value)
            faults.add(
                where, f"This is {what}; files are paths with texts.", "Write {main.tf: ...}."
            )
            return None
        upload = "or upload an archive."
        if len(value) > MOST_FILES:
            fault = f"{len(value)} files are too many."
            faults.add(where, fault, f"Use at most {MOST_FILES}, {upload}")
            return None
        found: dict[str, str] = {}
        for path, text in value.items():
            place = field_path(where, show_value(path))
            if wrong := why_not_path(path) if isinstance(path, str) else "This is not a path.":
                faults.add(place, wrong, "Write it like modules/net/main.tf.")
            elif not isinstance(text, str):
                way_out = "Put it in quotes, or upload other files as an archive."
                faults.add(place, f"This is {kind_of(text)}, not text.", way_out)
            else:
                found[path] = text
        size = sum(len(text.encode("utf-8", "replace")) for text in found.values())
        if size > MOST_TEXT:
            faults.add(where, f"{size} bytes are too many.", f"Use at most {MOST_TEXT}, {upload}")
        folders = {path[:at] for path in found for at, sign in enumerate(path) if sign == "/"}
        for path in sorted(folders & set(found)):
            faults.add(
                field_path(where, show_value(path)),
                "This path is a file and a folder at once.",
                "Rename the file or the folder.",
            )
        return tuple(sorted(found.items()))

    def schema(self) -> Schema:
        return {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "maxProperties": MOST_FILES,
        }


class SecretName(ValueType[str]):
    def read(self, value: object, where: str, faults: Faults) -> str | None:
        if isinstance(value, str) and SECRET.fullmatch(value):
            return value
        # The text may be the value of a secret, so the message does not repeat it.
        faults.add(
            where,
            "This is not the name of a secret.",
            "Use letters, digits and underscores, no digit first.",
        )
        return None

    def schema(self) -> Schema:
        return {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,62}$"}
