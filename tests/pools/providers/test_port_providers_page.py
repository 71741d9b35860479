"""The page that says which provider of ports can do what."""

import pytest

from claims.ports.port_list import PROTOCOLS
from pools.providers.base import known_providers
from tests.suite.test_docs_name_real_files import ROOT

PAGE = ROOT / "docs" / "port-providers.md"


def read_table() -> dict[str, dict[str, str]]:
    """The cells by row and provider."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("|") and not line.startswith("|---")
    ]
    names = [cell.partition("`")[2].partition("`")[0] for cell in rows[0][1:]]
    return {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows[1:]}


@pytest.mark.parametrize("name", ["aws", "tencent", "forwarder"])
def test_page_names_the_kinds_that_a_provider_serves(name: str) -> None:
    served = {kind for kind, _ in PROTOCOLS.values()} - {*known_providers()[name].unserved_kinds}
    assert set(read_table()["kinds of claims"][name].split(", ")) == served


@pytest.mark.parametrize("name", ["aws", "tencent", "forwarder"])
def test_page_says_whether_a_provider_serves_load_balancers_of_the_user(name: str) -> None:
    is_served = known_providers()[name].serves_named
    assert (read_table()["your own load balancers"][name] != "no") == is_served
