"""Templates are read without their indentation."""

import re

from django.template import engines
from django.template.loader import get_template

from tests.suite.test_template_columns import TEMPLATES


def test_template_indentation_does_not_reach_the_page() -> None:
    source = get_template("base.html").template.source
    assert "\n  " in TEMPLATES_BASE and "\n " not in source
    assert source.count("\n") == TEMPLATES_BASE.count("\n"), "line numbers in errors stay right"


def test_no_template_indents_preformatted_text() -> None:
    for path in TEMPLATES:
        for found in re.finditer(r"<(pre|textarea)\b.*?>(.*?)</\1>", path.read_text(), re.S):
            text = re.sub(
                r"<[^<>]*>", "", re.sub(r"\{%.*?%\}", "", found[2])
            )  # white space within a tag is no text
            assert "\n " not in text, path


def test_templates_are_cached() -> None:
    assert get_template("base.html").template is get_template("base.html").template
    assert engines["django"].engine.loaders[0][0] == "django.template.loaders.cached.Loader"


TEMPLATES_BASE = next(
    path for path in TEMPLATES if path.name == "base.html" and path.parent.name == "templates"
).read_text()
