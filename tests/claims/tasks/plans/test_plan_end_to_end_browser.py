"""A run in a real browser with real agents, from the form to the applied plan."""

import gzip
import io
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from pools.models import Member, Pool
from slots.members.tokens import issue_token
from tests.claims.tasks.agent_api.conftest import make_agents
from tests.dashboard.helpers import expect_not_reloaded, mark_page, person
from tests.dashboard.test_browser import LIVE, open_live
from tests.slots.agent.conftest import Agent, server, start_agent
from tests.slots.agent.state_backend import StateServer, kept
from tests.waiting import wait_until

__all__ = ["kept", "server", "start_agent"]  # fixtures

pytestmark = pytest.mark.browser

HELLO = Path(__file__).resolve().parents[4] / "examples" / "hello"
SignIn = Callable[[Any, User], None]
StartAgent = Callable[..., Agent]
SLOW = 60_000  # ms

MAIN = """
variable "text" { type = string }
variable "password" {
  type      = string
  sensitive = true
  default   = "hunter2-in-a-variable"
}
terraform {
  %(backend)s
}
resource "terraform_data" "one" {
  input            = "${var.text} ${var.password}"
  triggers_replace = [var.text]
  provisioner "local-exec" { command = "echo applied ${var.text} >> %(proof)s" }
}
"""


def begin_agent(pool: Pool, site: str, folder: Path, start_agent: StartAgent) -> Agent:
    token = issue_token(member_id=Member.objects.get(pool=pool).pk)
    agent = start_agent(url=site, token=token, folder=folder)
    wait_until(lambda: "hello" in agent.log)
    return agent


def approve_in(window: Any, workspace: str, *, has_read: bool = False) -> None:
    """As an approver who starts at the inbox."""
    open_live(window, "/approvals/")
    window.locator(".inbox").get_by_role("link", name=workspace).click()
    window.locator("h1", has_text=workspace).wait_for()  # the page before is live, too
    window.locator(LIVE).wait_for()
    if has_read:
        window.locator("#decide [name=read]").check()
    window.get_by_role("button", name="Approve and apply").click()


def wait_applied(window: Any) -> None:
    window.locator("h1 .st.done, h1 .st.failed, h1 .st.lost, h1 .st.rejected").wait_for(
        timeout=SLOW
    )
    assert window.locator("h1 .st.done", has_text="applied").count(), window.locator(
        "main"
    ).inner_text()


def test_the_hello_example_runs_from_the_form_to_its_page(
    page: Any, other: Any, sign_in: SignIn, site: str, tmp_path: Path, start_agent: StartAgent
) -> None:
    pool = make_agents("quay", slots=["any", "plan", "plan"])
    begin_agent(pool, site, tmp_path, start_agent)
    target = tmp_path / "out"
    sign_in(page, person("tanaka", "claimant"))
    sign_in(other, person("lind", "approver"))
    open_live(page, "/claims/")
    page.get_by_role("link", name="Run a plan").click()
    page.fill("[name=workspace]", "north-quay")
    page.fill("[name=plan_command]", "python3 hello.py plan")
    page.fill("[name=apply_command]", "python3 hello.py apply")
    page.get_by_label("Files written here").check()
    page.get_by_role("button", name="Add a file").click()
    for n, name in enumerate(("hello.py", "harbour.json")):
        page.locator("[name=file_path]").nth(n).fill(name)
        page.locator("[name=file_text]").nth(n).fill((HELLO / name).read_text())
    page.fill("[name=env]", f"HELLO_TARGET={target}")
    page.get_by_role("button", name="Start run").click()

    page.locator("h1", has_text="north-quay").wait_for()
    mark_page(page)
    page.locator("h1 .st.apply_pending").wait_for(timeout=SLOW)
    page.locator(".plan", has_text="ship.aurora").first.wait_for()
    page.get_by_role("button", name="Expand all").click()
    page.locator(".plan pre", has_text="coffee").first.wait_for()
    page.locator("[data-log-rows]", has_text=re.compile(r"\w")).wait_for()
    assert not target.exists()
    assert (
        page.get_by_role("button", name="Approve and apply").get_attribute("data-why")
        == "This needs the role approver."
    )

    approve_in(other, "north-quay")
    for window in (page, other):
        wait_applied(window)
        window.locator(".steps", has_text="by lind").wait_for()
        window.get_by_role("tab", name=re.compile("apply")).wait_for()
    page.locator("[data-log-said]", has_text="complete").wait_for()
    expect_not_reloaded(page)
    assert "aurora" in (target / "north-quay" / "index.html").read_text()
    assert len((target / "north-quay" / "applied.log").read_text().splitlines()) == 1


def test_a_tofu_archive_runs_from_the_form_to_its_result(
    page: Any,
    other: Any,
    sign_in: SignIn,
    site: str,
    tmp_path: Path,
    start_agent: StartAgent,
    tofu: Path,
    kept: StateServer,
) -> None:
    pool = make_agents("tf", slots=["any", "plan", "plan"], task={"binary": str(tofu)})
    begin_agent(pool, site, tmp_path, start_agent)
    proof = tmp_path / "proof"
    sign_in(page, person("tanaka", "claimant"))
    sign_in(other, person("lind", "approver"))

    def order(text: str) -> None:
        page.goto("/claims/run/?workspace=network")
        page.get_by_label("Terraform or OpenTofu").check()
        page.get_by_label("An archive").check()
        main = MAIN % {"backend": kept.block("network"), "proof": proof}
        archive = {
            "name": "infra.tar.gz",
            "mimeType": "application/gzip",
            "buffer": pack("infra/main.tf", main),
        }
        page.locator("[name=archive]").set_input_files([archive])
        page.fill("[name=archive_path]", "infra")
        page.fill("[name=variables]", f"text={text}")
        page.get_by_role("button", name="Start run").click()
        page.locator("h1 .st.apply_pending").wait_for(timeout=SLOW)

    order("first")
    page.locator(".plan", has_text="terraform_data.one").first.wait_for()
    page.get_by_role("button", name="Expand all").click()
    page.get_by_text("(sensitive)").first.wait_for()
    assert "hunter2" not in page.content()
    assert page.locator("[data-log-rows] .t-bold").count() > 0  # its colours
    approve_in(other, "network")
    wait_applied(page)
    assert proof.read_text() == "applied first\n"

    order("second")
    page.locator(".note.error", has_text="1 replacement.").wait_for()
    approve_in(other, "network", has_read=True)
    wait_applied(page)
    assert proof.read_text() == "applied first\napplied second\n"


def pack(name: str, text: str) -> bytes:
    out = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        entry = tarfile.TarInfo(name)
        entry.size = len(text.encode())
        tar.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()
