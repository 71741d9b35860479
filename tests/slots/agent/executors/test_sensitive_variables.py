"""Values of sensitive variables are found in the source before Terraform runs."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots.agent.executors.hcl import read_variables, tokenize
from slots.agent.executors.sensitive import find_sensitive

MAIN = r"""
# variable "comment" { sensitive = true  default = "in-a-comment" }
/* variable "comment" {
  sensitive = true default = "in-a-comment" } */
variable "plain" { default = "not-a-secret" }
variable "one" {
  type        = object({ a = string })
  description = "braces } in a \"text\", ${upper("nested } quote")} and more"
  default     = "value-of-one"
  validation {
    condition     = length(var.one) > 3 # }
    error_message = "sensitive = true"
  }
  sensitive = true
}
variable "many" {
  default = {
    user = "admin-user"
    list = ["first-item", "second\titem"]
    pin  = 471147114711
    text = <<-EOT
      line-of-a-heredoc
      another-line }
    EOT
  }
  sensitive = true // as it is
}
variable two {
  sensitive = (true)
  default = "value-of-two" }
variable "not" {
  sensitive = false
  default   = "also-not-a-secret"
}
resource "x" "variable" { sensitive = true }
"""
OF_MAIN = {
    "value-of-one", "admin-user", "first-item", "second\titem", "471147114711",
    "line-of-a-heredoc\nanother-line }", "value-of-two",
}  # fmt: skip


def find(folder: Path, variables: Any = None, environment: Any = None) -> set[str]:
    return set(find_sensitive(folder, folder, variables or {}, environment or {}))


def test_only_defaults_of_sensitive_variables_are_found(tmp_path: Path) -> None:
    (tmp_path / "main.tf").write_text(MAIN)
    assert find(tmp_path) == OF_MAIN


def test_values_are_found_in_the_task_the_environment_and_files_of_values(tmp_path: Path) -> None:
    (tmp_path / "main.tofu").write_text('variable "a" {\n sensitive = true\n}\nvariable "b" {\n}\n')
    (tmp_path / "terraform.tfvars").write_text('a = "from-tfvars"\nb = "not-sensitive"\n')
    (tmp_path / "x.auto.tfvars").write_text(
        '"a" = [\n  "from-auto",\n  { k = "from-inside" },\n]\n'
    )
    (tmp_path / "y.auto.tfvars.json").write_text(
        json.dumps({"a": {"deep": ["from-json"]}, "b": "not-sensitive"})
    )
    (tmp_path / "ignored.tfvars").write_text('a = "of-no-use"\n')
    found = find(
        tmp_path,
        {"a": ["from-the-task", True, 3], "b": "not-sensitive"},
        {"TF_VAR_a": '{k = "from-the-env"}', "TF_VAR_b": "no!!!!"},
    )
    assert found == {
        "from-tfvars", "from-auto", "from-inside", "from-json", "from-the-task",
        '{k = "from-the-env"}', "from-the-env",
    }  # fmt: skip


@pytest.mark.parametrize(
    "form",
    [
        lambda blocks: {"variable": blocks},
        lambda blocks: {"variable": [blocks]},
        lambda blocks: [{"variable": blocks}],
    ],
)
def test_variables_written_as_json_are_found(form: Any, tmp_path: Path) -> None:
    blocks = {
        "a": {"sensitive": True, "default": "value-of-a"},
        "b": [{"sensitive": "true", "default": ["value-of-b"]}],
        "c": {"default": "no"},
    }
    (tmp_path / "main.tf.json").write_text(json.dumps(form(blocks)))
    assert find(tmp_path) == {"value-of-a", "value-of-b"}


def test_short_values_are_ignored(tmp_path: Path) -> None:
    """They stand everywhere."""
    (tmp_path / "main.tf").write_text('variable "a" {\n sensitive = true\n default = "short"\n}\n')
    assert find(tmp_path, {"a": "x"}) == set()


def test_files_outside_the_source_are_not_read(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (tmp_path / "main.tf").write_text(MAIN)
    (source / "main.tf").symlink_to("../main.tf")
    assert find(source) == set()
    (source / "real").mkdir()
    (source / "main.tf").unlink()
    (source / "real" / "main.tf").write_text(MAIN)
    (source / "main.tf").symlink_to("real/main.tf")
    assert find(source) == OF_MAIN


@given(st.text(st.sampled_from('ab{}[]()"\\$%=\n#/*<-E 1'), max_size=60))
def test_tokenizer_and_reader_come_to_the_end_of_any_text(text: str) -> None:
    tokens = list(tokenize(text))
    read_variables(f'{text}\nvariable "x" {{\n{text}')
    assert all(token.kind for token in tokens)


@given(
    st.text(
        st.one_of(
            st.sampled_from('${}%"\\\n\t\r'),
            st.characters(min_codepoint=32, exclude_categories=("Cs", "Cc")),
        ),
        max_size=40,
    )
)
def test_string_literal_round_trips(value: str) -> None:
    written = json.dumps(value, ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")
    (block,) = read_variables(f'variable "x" {{\n  sensitive = true\n  default = {written}\n}}')
    assert block.values["default"][0].text == value
