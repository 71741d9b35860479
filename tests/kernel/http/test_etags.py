"""ETags of configuration."""

from project.kernel.http.api_base import etag_of


def test_etag_changes_with_any_of_its_parts():
    assert etag_of(1, "a") == etag_of(1, "a")
    assert len({etag_of(1, "a"), etag_of(2, "a"), etag_of(1, "b"), etag_of("1", "a")}) == 4
    assert etag_of(1).startswith('"')
