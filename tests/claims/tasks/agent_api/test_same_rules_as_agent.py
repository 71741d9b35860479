"""The API and the agent accept the same git hosts and program paths."""

import pytest

from claims.tasks.git_urls import host_of, is_git_url, is_host_allowed
from pools.config.parsing import Faults
from pools.config.task_spec import BINARY, HOSTS
from slots.agent.common.errors import TaskFailed
from slots.agent.executors.git import check_url
from slots.agent.executors.terraform import NAME

URLS = [
    "https://h/x", "https://h:443/x", "https://h:8443/x", "https://H:8443/x", "ssh://git@h/x",
    "ssh://git@h:22/x", "ssh://git@h:2222/x", "git@h:x/y.git", "https://a.h/x",
    "https://a.h:8443/x", "https://h.evil/x", "https://h:0/x", "https://h:99999/x",
]  # fmt: skip
ALLOWED = [
    ("h",),
    ("h:8443",),
    ("h:443",),
    ("*.h",),
    ("*.h:8443",),
    ("h:2222",),
    ("h", "h:8443"),
    (),
]


def agent_takes(url: str, hosts: tuple[str, ...]) -> bool:
    try:
        check_url(url, hosts)
    except TaskFailed:
        return False
    return True


@pytest.mark.parametrize("hosts", ALLOWED)
@pytest.mark.parametrize("url", URLS)
def test_api_and_agent_allow_the_same_git_hosts(url: str, hosts: tuple[str, ...]) -> None:
    by_the_api = is_git_url(url) and is_host_allowed(host_of(url), hosts)
    assert agent_takes(url, hosts) == by_the_api


@pytest.mark.parametrize(
    ("url", "hosts", "is_allowed"),
    [
        ("https://h:8443/x", ("h:8443",), True),
        ("https://h:8443/x", ("h",), False),
        ("https://h/x", ("h:8443",), False),
        ("https://h:443/x", ("h",), True),
        ("ssh://git@h:22/x", ("h",), True),
        ("git@h:x", ("h",), True),
        ("https://a.h:8443/x", ("*.h:8443",), True),
        ("https://a.h:8443/x", ("*.h",), False),
    ],
)
def test_a_host_without_a_port_allows_only_the_default_port(
    url: str, hosts: tuple[str, ...], is_allowed: bool
) -> None:
    assert (is_host_allowed(host_of(url), hosts), agent_takes(url, hosts)) == (
        is_allowed,
        is_allowed,
    )


@pytest.mark.parametrize("host", ["h:0", "h:65536", "h:99999", "h:", "h:x"])
def test_an_invalid_port_is_refused(host: str) -> None:
    faults = Faults()
    assert HOSTS.read([host], "hosts", faults) == () and [
        fault.field for fault in faults.found
    ] == ["hosts[0]"]


PROGRAMS = [
    "tofu",
    "terraform-1.9",
    "/root/.cache/berth/tofu/1.12.6/tofu",
    "/opt/a+b/tofu",
    "bin/tofu",
    "_x",
    ".x",
    "-x",
]


@pytest.mark.parametrize("binary", PROGRAMS)
def test_a_program_that_the_api_accepts_is_accepted_by_the_agent(binary: str) -> None:
    if BINARY.fullmatch(binary):
        assert NAME.match(binary) or binary.startswith("/")
