"""Named statements with what only the generator reads: description, result and marks."""

import re
from pathlib import Path

from project.kernel.db.sql import HEADING, MARK, Statements

COMMENT = re.compile(r"(?:-- (?!@)[^\n]*\n)*")


class AnnotatedStatements(Statements):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.about: dict[str, str] = {}
        self.results: dict[str, str] = {}  # by name: "", "^" or "$"
        self.marks: dict[str, dict[str, str]] = {}  # by name: field -> mark
        for name, result, about, body in HEADING.findall(path.read_text()):
            if name.startswith("_"):
                continue
            more = COMMENT.match(body)[0]  # type: ignore[index]
            self.about[name] = " ".join([about, *more.replace("-- ", "").split("\n")]).strip()
            self.results[name] = result
            self.marks[name] = {
                field.strip(): kind
                for kind, fields in MARK.findall(self.insert_fragments(body))
                for field in fields.split(",")
            }
