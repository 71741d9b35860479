"""Sources are uploaded or inline, repacked, stored once and sealed; unsafe ones are refused."""

import dataclasses
import gzip
import hashlib
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from claims.models import Claim, Source, Task
from claims.tasks.files import archives
from claims.tasks.files.archives import pack_files, repack
from claims.tasks.files.sources import source_of, store_files
from claims.tasks.run_spec import RunRequest, RunSource
from pools.lifecycle.services import update_pool
from pools.models import Pool
from project.kernel.errors import Invalid, Refused
from slots.models import Slot
from tests.api.conftest import Caller, Callers
from tests.api.helpers import make_pool
from tests.claims.tasks.agent_api.conftest import Agent, make_claim

TEXT = "resource that nobody else may read\n"
RUN = {"executor": "command", "commands": {"plan": "./plan.sh", "apply": "./apply.sh"}}


def tar_of(*entries: tuple[str, Any], mode: str = "w:gz") -> bytes:
    """Names with contents; a TarInfo instead of a content is taken as it is."""
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode=mode) as tar:
        for name, content in entries:
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return into.getvalue()


def special(name: str, kind: bytes, link: str = "") -> tuple[str, tarfile.TarInfo]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return name, info


def zip_of(*entries: tuple[str, bytes], mode: int = 0) -> bytes:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return into.getvalue()


def names_in(data: bytes) -> dict[str, bytes | str | None]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {m.name: tar.extractfile(m).read() if m.isreg() else m.linkname or None for m in tar}  # type: ignore[union-attr]


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_equal_archives_are_repacked_into_equal_bytes(pack: Callable[..., bytes]) -> None:
    kept = repack(pack(("./main.tf", b"a"), ("modules/net/main.tf", b"b")))
    assert names_in(kept.data) == {"main.tf": b"a", "modules/net/main.tf": b"b"} and kept.files == 2
    assert repack(pack(("main.tf", b"a"), ("modules/net/main.tf", b"b"))).data == kept.data, (
        "the same, whoever packed it and when"
    )


def test_repacking_keeps_inner_links_and_drops_owners() -> None:
    info = tarfile.TarInfo("run.sh")
    info.mode, info.uid, info.uname, info.size = 0o4755, 1234, "ana", 0
    kept = repack(
        tar_of(
            ("run.sh", info),
            special("lib", tarfile.DIRTYPE),
            special("lib/latest", tarfile.SYMTYPE, "../run.sh"),
        )
    )
    with tarfile.open(fileobj=io.BytesIO(kept.data)) as tar:
        found = {m.name: m for m in tar}
    assert (
        found["run.sh"].mode,
        found["run.sh"].uid,
        found["run.sh"].uname,
        found["run.sh"].mtime,
    ) == (0o755, 0, "", 0)
    assert found["lib/latest"].linkname == "../run.sh"


@pytest.mark.parametrize(
    "entry",
    [
        ("../evil", b"x"),
        ("/etc/passwd", b"x"),
        ("a/../../evil", b"x"),
        ("a//b", b"x"),
        ("a\\..\\b", b"x"),
        ("a\nb", b"x"),
        ("x" * 1100, b"x"),
        special("l", tarfile.SYMTYPE, "/etc/passwd"),
        special("l", tarfile.SYMTYPE, "../x"),
        special("a/l", tarfile.SYMTYPE, "x/../../../y"),
        special("l", tarfile.LNKTYPE, "main.tf"),
        special("dev", tarfile.CHRTYPE),
        special("fifo", tarfile.FIFOTYPE),
        ("main.tf", b"again"),
        ("main.tf/below", b"x"),
    ],
)
def test_an_entry_outside_the_archive_or_of_a_special_type_is_refused(
    entry: tuple[str, Any],
) -> None:
    with pytest.raises(Refused) as caught:
        repack(tar_of(("main.tf", b"a"), entry))
    assert caught.value.code == "source_refused" and caught.value.way_out


def test_an_entry_below_a_link_is_refused() -> None:
    with pytest.raises(Refused):
        repack(tar_of(special("d", tarfile.SYMTYPE, "elsewhere"), ("d/x", b"x")))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"plain text",
        b"\x1f\x8b broken",
        b"PK\x03\x04 broken",
        gzip.compress(b"no tar"),
        tar_of(("a", b"x"), mode="w"),
        tar_of(("a", b"x" * 5000))[:-60],
        tar_of(special("only", tarfile.DIRTYPE)),
        zip_of(("l", b"/etc/passwd"), mode=stat.S_IFLNK | 0o777),
        zip_of(("../x", b"x")),
        zip_of(),
    ],
    # What is packed holds the time: each worker would call it otherwise.
    ids=[str(n) for n in range(11)],
)
def test_broken_and_incomplete_archives_are_refused(data: bytes) -> None:
    with pytest.raises(Refused) as caught:
        repack(data)
    assert caught.value.code == "source_refused"


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_archive_bombs_are_refused(
    pack: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "FREE_BYTES", 100_000)
    monkeypatch.setattr(archives, "HIGHEST_RATIO", 10)
    bomb = pack(*[(f"f{n}", b"\0" * 100_000) for n in range(3)])
    assert len(bomb) < 3000
    with pytest.raises(Refused, match="unpacks to more"):
        repack(bomb)
    monkeypatch.setattr(archives, "FREE_BYTES", 10**7)
    monkeypatch.setattr(archives, "MOST_FILES", 2)
    with pytest.raises(Refused, match="more than 2 files"):
        repack(bomb)


def test_a_zip_with_too_many_names_is_refused_before_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each name takes half a kilobyte of memory, and 45 bytes in the file."""
    monkeypatch.setattr(archives, "MOST_FILES", 2)
    data = zip_of(*[(f"f{n}", b"") for n in range(5)])
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(Refused, match="more than 2 files"):
        repack(data)


def header(kind: bytes, body: bytes) -> bytes:
    """A header of its own before a file, as tar writes it."""
    info = tarfile.TarInfo("words")
    info.type, info.size = kind, len(body)
    return info.tobuf(tarfile.USTAR_FORMAT) + body.ljust(-(-len(body) // 512) * 512, b"\0")


def with_header(kind: bytes, body: bytes) -> bytes:
    return gzip.compress(header(kind, body) + gzip.decompress(tar_of(("main.tf", b"a"))))


@pytest.mark.parametrize(
    "kind",
    [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.SOLARIS_XHDTYPE],
)
def test_a_tar_with_a_long_header_is_refused(kind: bytes) -> None:
    """Python reads such a header into memory as a whole, several times."""
    body = b"20000 comment="
    with pytest.raises(Refused, match="too long"):
        repack(with_header(kind, body + b"x" * (20_000 - len(body) - 1) + b"\n"))


def record(keyword: str, value: str) -> bytes:
    length = len(keyword) + len(value) + 3
    while len(f"{length}") + len(keyword) + len(value) + 3 != length:
        length += 1
    return f"{length} {keyword}={value}\n".encode()


HARMFUL_PAX = {
    "digits alone": b"1" * 16_000,
    "a length of many digits": b"0" * 5000 + b"12 a=b\n",
    "digits as a value": record("comment", "7" * 8000),
    "a length beyond its end": b"99 a=b\n",
    "a length of nothing": b"2 a=b\n",
    "no keyword": b"5 =b\n",
    "no line break": b"7 a=bcd",
    "something after the last record": record("a", "b") + b"\0" * 5 + b"9",
    "a sparse file": record("GNU.sparse.major", "1")
    + record("GNU.sparse.minor", "0")
    + record("GNU.sparse.name", "x"),
}


@pytest.mark.parametrize("name", HARMFUL_PAX)
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE])
def test_a_tar_with_a_harmful_header_is_refused(
    kind: bytes, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before tarfile interprets it: that may take it minutes."""
    monkeypatch.setattr(tarfile.TarInfo, "_proc_pax", None)
    with pytest.raises(Refused, match="header|sparse"):
        repack(with_header(kind, HARMFUL_PAX[name]))


def test_an_old_gnu_sparse_file_is_refused() -> None:
    with pytest.raises(Refused, match="sparse"):
        repack(
            gzip.compress(
                header(tarfile.GNUTYPE_SPARSE, b"") + gzip.decompress(tar_of(("main.tf", b"a")))
            )
        )


def test_a_tar_of_headers_only_is_refused() -> None:
    one = header(tarfile.XHDTYPE, record("comment", "x"))
    with pytest.raises(Refused):
        repack(gzip.compress(one * 3000))


def test_a_tar_with_long_names_and_comments_is_accepted() -> None:
    """Long names, other characters, times and comments."""
    name = "modules/" + "é" * 100 + "/" + "x" * 200
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        into = io.BytesIO()
        with tarfile.open(
            fileobj=into, mode="w:gz", format=form, pax_headers={"comment": "3f" * 20}
        ) as tar:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = 1, 1234567890.123456789  # type: ignore[assignment]
            tar.addfile(info, io.BytesIO(b"a"))
        assert names_in(repack(into.getvalue()).data) == {name: b"a"}


def test_an_archive_is_read_in_a_child_with_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    data = tar_of(("main.tf", b"a"))
    assert archives.repack_limited(data) == repack(data)
    with pytest.raises(Refused) as caught:
        archives.repack_limited(tar_of(("../evil", b"x")))
    assert caught.value.code == "source_refused" and "evil" in caught.value.detail
    monkeypatch.setattr(archives, "LIMITS", dataclasses.replace(archives.LIMITS, memory=40_000_000))
    with pytest.raises(Refused, match="MB of memory") as caught:
        archives.repack_limited(gzip.compress(os.urandom(25_000_000), 1))
    assert caught.value.code == "source_refused" and caught.value.way_out


def test_a_zip_with_false_sizes_is_refused() -> None:
    honest = zip_of(("f", b"\0" * 10_000))
    size = (10_000).to_bytes(4, "little")
    with pytest.raises(Refused):
        repack(honest.replace(size, (10).to_bytes(4, "little")))


def test_inline_files_in_any_order_make_equal_archives() -> None:
    first = pack_files([("b.sh", "#!/bin/sh\n"), ("a", TEXT)])
    assert first.data == pack_files([("a", TEXT), ("b.sh", "#!/bin/sh\n")]).data
    with tarfile.open(fileobj=io.BytesIO(first.data)) as tar:
        assert {m.name: m.mode for m in tar} == {"a": 0o644, "b.sh": 0o755}


# Over HTTP ----------------------------------------------------------------------------------------


def upload(who: Caller, data: bytes, kind: str = "application/gzip") -> Any:
    response = who.client.generic(
        "POST",
        "/api/v1/sources/",
        data,
        content_type=kind,
        headers={"Authorization": f"Bearer {who.secret}"},
    )
    return response.status_code, response.json()


@pytest.mark.django_db
def test_equal_uploads_are_stored_once_and_sealed(pool: Pool, caller: Callers, files: Path) -> None:
    who = caller("claimant", pool)
    data = tar_of(("main.tf", TEXT.encode()))
    status, first = upload(who, data)
    assert (status, first["files"]) == (201, 1)
    assert upload(who, data) == (201, first)
    assert upload(who, zip_of(("main.tf", TEXT.encode())), "application/zip")[1] == first, (
        "the same files"
    )
    on_disk = [path for path in files.rglob("*") if path.is_file()]
    assert len(on_disk) == 1 and TEXT.encode() not in on_disk[0].read_bytes()
    assert Source.objects.get().made_by.startswith("claimant")
    for wrong, kind, expected in ((b"x", "application/gzip", 422), (data, "text/html", 415)):
        assert upload(who, wrong, kind)[0] == expected
    assert upload(caller("viewer", pool), data)[0] == 403


@pytest.mark.django_db
def test_an_agent_fetches_the_source_of_its_claim(
    pool: Pool, caller: Callers, agent: Agent
) -> None:
    who = caller("claimant", pool)
    _, kept = upload(who, tar_of(("apply.sh", b"echo"), ("plan.sh", b"echo")))
    for source in ({"archive": kept["digest"]}, {"files": {"plan.sh": "echo", "apply.sh": "echo"}}):
        body = {
            "pool": pool.name,
            "task": "plan_and_apply",
            "workspace": f"net/{len(source)}{next(iter(source))}",
            "run": {**RUN, "source": source},
        }
        made = who.post("claims/", body)
        assert made.status in (201, 202), made.body
        task = Task.objects.get(claim_id=made.body["id"])
        assert task.source and bytes(task.source.digest).hex() == kept["digest"]
        if made.status == 202:
            continue
        told = agent.get(f"tasks/{made.body['id']}/{made.body['generation']}/").body
        assert told["source"] == {"kind": "archive", "digest": kept["digest"]}
        fetched = agent.get(f"tasks/{made.body['id']}/{made.body['generation']}/source/").body
        assert hashlib.sha256(fetched).hexdigest() == kept["digest"]


@pytest.mark.django_db
def test_the_agent_gets_the_complete_task(pool: Pool, caller: Callers, agent: Agent) -> None:
    update_pool(
        pool_name=pool.name,
        config={
            "name": pool.name,
            "provider": "agents",
            "slots": ["any", "plan", "plan"],
            "members": {"max": 10},
            "task": {
                "timeout": "10m",
                "stop_timeout": "90s",
                "env": {"TF_LOG": "INFO", "REGION": "eu"},
                "git": {"hosts": ["git.example.com"]},
                "memory": "1GB",
            },
        },
    )
    run = {
        "executor": "terraform",
        "source": {
            "git": {"url": "https://git.example.com/net.git", "ref": "main", "path": "envs/prod"}
        },
        "variables": {"count": 3},
        "env": {"REGION": "us"},
        "secrets": ["NONE"],
        "timeout": "2h",
        "binary": "terraform",
    }
    made = (
        caller("claimant", pool)
        .post("claims/", {"pool": pool.name, "task": "plan", "run": run})
        .body
    )
    told = agent.get(f"tasks/{made['id']}/{made['generation']}/").body
    assert told["source"] == {
        "kind": "git",
        "url": "https://git.example.com/net.git",
        "ref": "main",
        "path": "envs/prod",
    }
    assert (told["executor"], told["step"], told["task"], told["binary"]) == (
        "terraform",
        "plan",
        "plan",
        "terraform",
    )
    assert (told["env"], told["variables"], told["secrets"]) == (
        {"TF_LOG": "INFO", "REGION": "us"},
        {"count": 3},
        {"NONE": None},
    )
    assert told["stop_timeout_s"] == 90
    assert (told["timeout_s"], told["git_hosts"], told["limits"]["memory_bytes"]) == (
        600,
        ["git.example.com"],
        10**9,
    )
    assert told["plan"] is None


@pytest.mark.django_db
def test_a_run_that_cannot_be_accepted_creates_no_claim(pool: Pool, caller: Callers) -> None:
    make_pool("ports")
    who = caller("claimant")
    task = {"pool": pool.name, "task": "plan"}
    plan = {"executor": "command", "commands": {"plan": "x"}}
    git = {"executor": "terraform", "source": {"git": {"url": "https://evil.example/x"}}}
    cases = [
        ({**task}, 400, "run"),
        ({"pool": "ports", "run": plan}, 400, "task"),
        ({"pool": "ports", "kind": "slot", "task": "plan", "run": plan}, 400, "kind"),
        ({**task, "pool": "not-there", "run": plan}, 400, "run"),
        ({**task, "run": git}, 400, "run.source.git.url"),
        ({**task, "run": {**plan, "source": {"archive": "ab" * 32}}}, 400, "run.source.archive"),
        ({**task, "size": 2, "run": plan}, 400, "size"),
        ({**task, "run": {"executor": "command"}}, 400, "run.commands.plan"),
    ]
    for body, status, field in cases:
        answer = who.post("claims/", body)
        assert (answer.status, [e["field"] for e in answer.body["errors"]][:1]) == (
            status,
            [field],
        ), (body, answer.body)
    bulk = who.post(
        "claims/bulk/", {"claims": [body for body, _, _ in cases] + [{**task, "run": plan}] * 2}
    ).body["results"]
    assert [item["status"] for item in bulk] == [400] * len(cases) + [201, 201]
    assert Claim.objects.count() == Task.objects.count() == 2


@pytest.mark.django_db
def test_a_claim_for_a_named_slot_may_have_a_run(pool: Pool, caller: Callers, agent: Agent) -> None:
    slot = Slot.objects.filter(pool=pool, lane="any").get()
    body = {
        "slot": slot.pk,
        "task": "plan",
        "run": {"executor": "command", "commands": {"plan": "x"}, "source": {"files": {"a": "b"}}},
    }
    made = caller("operator", pool).post("claims/", body)
    assert made.status == 201, made.body
    (order,) = agent.get("orders/").body["orders"]
    assert (order["claim"], order["slot"]) == (made.body["id"], slot.pk)
    assert (
        agent.get(f"tasks/{order['claim']}/{order['generation']}/").body["source"]["kind"]
        == "archive"
    )


@pytest.mark.django_db
def test_a_static_pool_refuses_a_run_and_accepts_a_bare_task(caller: Callers) -> None:
    make_pool("ledger", slots=["any"])
    who = caller("claimant")
    answer = who.post(
        "claims/",
        {
            "pool": "ledger",
            "task": "plan",
            "run": {"executor": "command", "commands": {"plan": "x"}},
        },
    )
    assert (answer.status, answer.body["errors"][0]["field"]) == (400, "run")
    assert who.post("claims/", {"pool": "ledger", "task": "plan"}).status == 201, (
        "it keeps the ledger, as ever"
    )


@pytest.mark.django_db
def test_a_reused_key_returns_the_same_run_or_is_refused(pool: Pool, caller: Callers) -> None:
    who = caller("claimant", pool)
    body = {
        "pool": pool.name,
        "task": "plan",
        "key": "k",
        "run": {"executor": "command", "commands": {"plan": "x"}},
    }
    first = who.post("claims/", body)
    again = who.post("claims/", body)
    assert first.body["id"] == again.body["id"] and again.headers["Idempotency-Replayed"] == "true"
    other = who.post("claims/", {**body, "run": {"executor": "command", "commands": {"plan": "y"}}})
    assert (other.status, other.body["code"]) == (409, "key_reused")
    assert Task.objects.count() == 1


@pytest.mark.django_db
def test_a_source_needs_its_uploader_or_a_pool_that_used_it(pool: Pool) -> None:
    """Allowed: callers that uploaded the same files, and claimants of a pool that used them."""
    kept = store_files([("plan.sh", "echo hello")], made_by="ana")

    def find(by: str, *pools: str) -> int | None:
        run = RunRequest(executor="command", source=RunSource("archive", digest=kept.digest))
        try:
            return source_of(run, made_by=by, pools=pools)
        except Invalid as error:
            return None if error.fields[0].field == "run.source.archive" else -1

    assert (find("ana", "other"), find("eve", "other"), find("eve", pool.name)) == (
        kept.id,
        None,
        None,
    )
    assert store_files([("plan.sh", "echo hello")], made_by="ben").id == kept.id
    assert (find("ben", "other"), find("eve", "other")) == (kept.id, None)
    make_claim(pool, source_id=kept.id)
    assert (find("eve", pool.name), find("eve", "other")) == (kept.id, None)
