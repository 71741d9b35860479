"""The rows of docs/faults.jsonl were measured on commits of this history."""

import subprocess
from pathlib import Path

import pytest

from tests.faults.campaign.rows import KEPT, read_rows

ROOT = Path(__file__).resolve().parents[2]


def git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def has_history(folder: Path) -> bool:
    """False: an archive, or a shallow clone."""
    found = git(folder, "rev-parse", "--is-shallow-repository", "--show-toplevel")
    return found.stdout.split() == ["false", str(folder)]


def commits_outside(folder: Path, commits: set[str]) -> list[str]:
    """The commits that are no ancestors of HEAD."""
    return sorted(
        commit
        for commit in commits
        if git(folder, "merge-base", "--is-ancestor", commit, "HEAD").returncode
    )


def test_each_commit_of_the_measured_rows_is_an_ancestor_of_this_one() -> None:
    if not has_history(ROOT):
        pytest.skip("this checkout has no history")
    commits = {row.commit for row in read_rows(KEPT)}
    assert commits
    assert commits_outside(ROOT, commits) == [], "measure these rows again, on a commit of main"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits on one branch, a third on another."""
    folder = tmp_path / "full"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for name in ("one", "two"):
        git(folder, "commit", "-q", "--allow-empty", "-m", name)
    git(folder, "checkout", "-q", "-b", "other")
    git(folder, "commit", "-q", "--allow-empty", "-m", "three")
    git(folder, "checkout", "-q", "main")
    return folder


def test_commit_of_another_branch_and_unknown_commit_are_found(repository: Path) -> None:
    first = git(repository, "rev-parse", "--short=8", "HEAD^").stdout.strip()
    other = git(repository, "rev-parse", "--short=8", "other").stdout.strip()
    assert commits_outside(repository, {first, other, "0" * 8}) == sorted([other, "0" * 8])


def test_archive_and_shallow_clone_have_no_history(repository: Path, tmp_path: Path) -> None:
    assert has_history(repository)
    shallow, archive = tmp_path / "shallow", tmp_path / "archive"
    git(tmp_path, "clone", "-q", "--depth", "1", repository.as_uri(), str(shallow))
    assert (shallow / ".git").exists()
    archive.mkdir()
    assert [has_history(shallow), has_history(archive)] == [False, False]
