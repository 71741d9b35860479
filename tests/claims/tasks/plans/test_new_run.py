"""The form of a new run shows every fault at its field, keeps the input and creates a claim."""

import io
import re
import tarfile
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from claims.allocation.selectors import view_claim
from claims.models import Claim, Task
from claims.tasks.plans.selectors import view_plan
from claims.tasks.task_body import open_body
from pools.secrets.services import set_secret
from tests.claims.tasks.plans.helpers import begin, finish, make_task_pool, planned
from tests.dashboard.helpers import chief, make_pool, person
from tests.dashboard.plain_browser import browser_of, get

pytestmark = pytest.mark.django_db(transaction=True)  # files are written outside every transaction

PLAIN = {
    "pool": "tf",
    "kind": "plan_and_apply",
    "workspace": "net",
    "executor": "command",
    "plan_command": "./plan.sh",
    "apply_command": "./apply.sh",
}


def packed(**files: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def made(answer: Any) -> Task:
    assert answer.status_code == 302, faults(answer)
    claim = int(re.search(r"/claims/(\d+)/", answer["Location"])[1])  # type: ignore[index]
    return Task.objects.select_related("claim", "source").get(claim_id=claim)


def faults(answer: Any) -> list[str]:
    return [
        re.sub(r"<[^>]+>", "", text).strip()
        for text in re.findall(r'class="fault"[^>]*>(.*?)</small>', answer.content.decode(), re.S)
    ]


def test_a_run_by_form_creates_a_claim_with_its_task() -> None:
    make_task_pool()
    set_secret(pool_id=make_task_pool("other").pk, name="ELSEWHERE", value="x")
    client = browser_of(person("cleo", "claimant"))
    page = get(client, "/claims/run/?pool=tf&workspace=net")
    assert 'value="net"' in page
    assert "ELSEWHERE" not in page
    variables = (
        'region=eu-1\r\n\r\nsize = 3\r\nzones = [\r\n  "a",\r\n  "b",\r\n'
        ']\r\ntags = {owner = "net"}\r\ntext = "3"'
    )
    more = {"variables": variables, "env": "TF_LOG=info", "timeout": "45m", "owner": "pipeline:42"}
    task = made(client.post("/claims/run/", PLAIN | {"source": "none"} | more))
    assert task.executor == "command"
    assert task.body["commands"] == {"plan": "./plan.sh", "apply": "./apply.sh"}
    body = open_body(task.body, bytes(task.sealed))
    assert body["variables"] == {
        "region": "eu-1",
        "size": 3,
        "zones": ["a", "b"],
        "tags": {"owner": "net"},
        "text": "3",
    }
    assert body["env"] == {"TF_LOG": "info"}
    assert task.claim.owner == "pipeline:42"
    assert task.claim.requested_by == "cleo"


def test_files_of_the_form_are_stored_as_a_source() -> None:
    make_task_pool()
    client = browser_of(chief())
    files = {
        "source": "files",
        "file_path": ["main.tf", "mod/x.tf", ""],
        "file_text": ["a\r\nb", "c", ""],
    }
    task = made(
        client.post("/claims/run/", {"pool": "tf", "kind": "plan", "executor": "terraform"} | files)
    )
    assert task.source is not None
    assert task.source.files == 2


def test_an_uploaded_archive_is_kept_while_other_faults_are_corrected() -> None:
    make_task_pool()
    client = browser_of(chief())
    upload = SimpleUploadedFile("work.tar.gz", packed(plan__sh="echo hi"))
    wrong = client.post(
        "/claims/run/", PLAIN | {"source": "archive", "archive": upload, "workspace": "no good!"}
    )
    assert wrong.status_code == 422
    kept = re.search(r'name="kept_archive" value="([0-9a-f]{64})"', wrong.content.decode())
    assert kept is not None
    task = made(client.post("/claims/run/", PLAIN | {"source": "archive", "kept_archive": kept[1]}))
    assert task.source is not None


def test_an_archive_that_leaves_its_folder_is_refused_at_its_field() -> None:
    make_task_pool()
    upload = SimpleUploadedFile("evil.tar.gz", packed(**{"..__evil": "x"}))
    answer = browser_of(chief()).post(
        "/claims/run/", PLAIN | {"source": "archive", "archive": upload}
    )
    assert answer.status_code == 422
    assert any("evil" in text or ".." in text for text in faults(answer)), faults(answer)
    assert not Claim.objects.exists()


def test_every_fault_is_shown_at_its_field_and_the_input_is_kept() -> None:
    make_task_pool()
    client = browser_of(chief())
    answer = client.post(
        "/claims/run/",
        {
            "pool": "tf", "kind": "plan_and_apply", "workspace": "no good!", "executor": "command",
            "plan_command": "./plan.sh", "source": "git", "git_url": "file:///etc",
            "git_ref": "--upload-pack=x", "variables": "region", "env": "A=1\nA=2",
            "timeout": "soon", "priority": "high",
        },
    )  # fmt: skip
    text = answer.content.decode()
    assert answer.status_code == 422
    for name in (
        "workspace",
        "apply_command",
        "git_url",
        "git_ref",
        "variables",
        "env",
        "timeout",
        "priority",
    ):
        assert f'id="f-{name}-e"' in text, name
    assert re.search(r"<b>(\d+) errors", text)
    for typed in ("no good!", "./plan.sh", "file:///etc", "region", "soon"):
        assert typed in text, typed
    assert not Claim.objects.exists()


def test_adding_a_file_without_scripts_keeps_the_other_files() -> None:
    make_task_pool()
    answer = browser_of(chief()).post(
        "/claims/run/",
        PLAIN | {"source": "files", "file_path": "a", "file_text": "<b>", "more": "file"},
    )
    text = answer.content.decode()
    assert answer.status_code == 200
    assert text.count('name="file_path"') == 2
    assert "&lt;b&gt;" in text


def test_the_form_offers_only_agent_pools_where_the_user_may_claim() -> None:
    make_pool("env")
    mine = make_task_pool("mine")
    make_task_pool("theirs")
    client = browser_of(person("cleo", "claimant", pool=mine))
    text = get(client, "/claims/run/")
    assert 'value="mine"' in text
    assert 'value="theirs"' not in text
    assert 'value="env"' not in text
    refused = client.post("/claims/run/", PLAIN | {"pool": "theirs", "source": "none"})
    assert refused.status_code == 422
    assert "role claimant" in refused.content.decode()
    get(browser_of(person("vera", "viewer")), "/claims/run/", 403)
    assert "may not claim in any pool with agents" in get(
        browser_of(person("clem", "claimant", pool=make_pool("bare"))), "/claims/run/"
    )


def test_secrets_are_chosen_by_name_and_never_shown() -> None:
    pool = make_task_pool()
    set_secret(pool_id=pool.pk, name="API_KEY", value="hunter2")
    client = browser_of(chief())
    text = get(client, "/claims/run/")
    assert "API_KEY" in text
    assert "hunter2" not in text
    task = made(client.post("/claims/run/", PLAIN | {"source": "none", "secrets": ["API_KEY"]}))
    assert task.body["secrets"] == ["API_KEY"]
    assert "hunter2" not in get(client, f"/claims/{task.claim_id}/")


def test_a_state_is_discarded_only_by_choice_and_approvers_are_told() -> None:
    make_task_pool()
    client = browser_of(chief())
    module = {
        "pool": "tf",
        "executor": "terraform",
        "source": "files",
        "file_path": "main.tf",
        "file_text": "a",
    }
    apply = module | {"kind": "plan_and_apply", "workspace": "ships"}
    assert "state" not in made(client.post("/claims/run/", apply | {"state": ""})).body
    assert (
        "state"
        not in made(client.post("/claims/run/", module | {"kind": "plan", "state": "discard"})).body
    ), "a plan changes none"
    assert any(
        "is not a valid value" in text
        for text in faults(client.post("/claims/run/", apply | {"state": "keep"}))
    )
    task = made(client.post("/claims/run/", apply | {"state": "discard", "workspace": "boats"}))
    assert task.body["state"] == "discard"
    claim = view_claim(task.claim_id)
    begin(claim)
    finish(claim, "planned")
    assert "This run discards the state." in get(client, f"/claims/{claim.id}/")
    assert "This run discards the state." in get(client, "/approvals/")
    plan = view_plan(claim.id)
    assert plan is not None and plan.discards_state


def test_a_plan_that_keeps_its_state_does_not_mention_it() -> None:
    make_task_pool()
    client = browser_of(chief())
    claim = planned("net")
    assert "is discarded" not in get(client, f"/claims/{claim.id}/") + get(client, "/approvals/")
