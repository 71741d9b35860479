"""Task folders of any content are handed over and removed, and no file beside them is touched."""

import os
import shutil
from pathlib import Path

import pytest

from pools.providers.local import agent_folder
from slots.agent.common.errors import TaskFailed
from slots.agent.processes.users import User
from slots.agent.workdir.folders import Folder, remove

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
SOMEBODY = User(64_999, 64_999)


def nest(top: Path, depth: int) -> None:
    """Deeper than a path can be long."""
    handle = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=handle)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(handle)


def test_deeply_nested_folders_are_removed(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "1-10")
    folder.make()
    nest(folder.source, 3_000)
    assert remove(folder.top)
    assert not folder.top.exists()


def test_agent_folder_is_removed_whatever_it_contains(tmp_path: Path) -> None:
    top = tmp_path / "agent"
    top.mkdir()
    nest(top, 1_200)
    (top / "link").symlink_to(tmp_path)
    agent_folder._remove_tree(top)
    assert not top.exists() and tmp_path.exists()


def test_unwritable_folders_are_removed_and_link_targets_stay(tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    beside.mkdir(mode=0o755)
    (beside / "file").touch()
    top = tmp_path / "top"
    (top / "a/b/c").mkdir(parents=True)
    (top / "a/b/link").symlink_to(beside)
    (top / "link").symlink_to(beside)
    (top / "a/b/c").chmod(0)
    (top / "a/b").chmod(0o100)
    top.chmod(0)
    child = os.fork()
    if child == 0:  # as a user without rights on the folder
        code = 1
        try:
            if os.geteuid() == 0:
                for place in (tmp_path, top, top / "a", top / "a/b", top / "a/b/c"):
                    os.chown(place, SOMEBODY.uid, SOMEBODY.gid)
                os.chdir(tmp_path)
                os.setgid(SOMEBODY.gid)
                os.setuid(SOMEBODY.uid)
                top = Path("top")
            code = 0 if remove(top) else 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert not (tmp_path / "top").exists()
    assert (beside / "file").exists() and beside.stat().st_mode & 0o777 == 0o755


def test_link_in_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "beside").mkdir(mode=0o755)
    (tmp_path / "top").symlink_to(tmp_path / "beside")
    assert not remove(tmp_path / "top")
    assert (tmp_path / "beside").stat().st_mode & 0o777 == 0o755


@needs_root
def test_source_nested_too_deep_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "1-10")
    folder.make()
    nest(folder.source, 1_200)
    with pytest.raises(TaskFailed, match="nested more than") as refused:
        folder.chown(SOMEBODY)
    assert refused.value.code == "source_refused"
    remove(folder.top)


@needs_root
def test_only_files_of_the_task_change_their_owner(tmp_path: Path) -> None:
    folder, secret, link = Folder(tmp_path / "1-10"), tmp_path / "secret", tmp_path / "link"
    folder.make()
    secret.touch()
    link.symlink_to("secret")
    os.link(secret, folder.source / "planted")
    os.link(link, folder.source / "planted-link", follow_symlinks=False)
    (folder.source / "to").symlink_to(secret)
    (folder.source / "below").mkdir()
    (folder.source / "below/one").touch()
    os.link(folder.source / "below/one", folder.home / "two")
    os.mkfifo(folder.source / "pipe")
    folder.chown(SOMEBODY)
    owned = {
        name
        for name in ("to", "below", "below/one", "pipe")
        if (folder.source / name).lstat().st_uid == SOMEBODY.uid
    }
    assert owned == {"to", "below", "below/one", "pipe"}
    assert secret.stat().st_uid == link.lstat().st_uid == 0
    shutil.rmtree(folder.top)
