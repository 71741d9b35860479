"""Terraform's providers listen on Unix sockets, whose paths have at most 107 characters."""

import socket
from pathlib import Path

import pytest

from slots.agent.workdir.folders import LONGEST_TMP, Folder, link_for, remove

PROVIDER_NAME = "plugin1234567890123"


@pytest.fixture
def deep(tmp_path: Path) -> Folder:
    top = tmp_path / ("x" * LONGEST_TMP) / "1-10"
    top.parent.mkdir()
    folder = Folder(top)
    folder.make()
    return folder


def test_provider_can_listen_in_a_deep_task_folder(deep: Folder) -> None:
    with socket.socket(socket.AF_UNIX) as long, pytest.raises(OSError, match="too long"):
        long.bind(str(deep.tmp / PROVIDER_NAME))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{deep.link_short_tmp()}/{PROVIDER_NAME}")
    assert (deep.tmp / PROVIDER_NAME).is_socket()
    assert remove(deep.top)


def test_socket_link_is_removed_with_the_task_folder(deep: Folder) -> None:
    link = Path(deep.link_short_tmp())
    assert link.is_symlink()
    assert remove(deep.top)
    assert not link.is_symlink()


def test_existing_link_that_leads_elsewhere_is_not_used(deep: Folder, tmp_path: Path) -> None:
    link = link_for(deep.top)
    link.unlink()
    link.symlink_to(tmp_path)
    assert deep.link_short_tmp() == ""
    assert remove(deep.top)


def test_short_folder_needs_no_link() -> None:
    folder = Folder(Path("/w/1-10"))
    assert folder.link_short_tmp() == ""
    assert not link_for(folder.top).is_symlink()
