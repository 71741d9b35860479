"""Messages link the claims that they name, and user text never becomes markup."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from claims.templatetags.claims import linked, lowered


def test_a_named_claim_becomes_a_link() -> None:
    assert linked("Claim 12 holds it, then claim 7") == (
        'Claim <a class="why in" href="/claims/12/">12</a> holds it, then claim <a class="why in" '
        'href="/claims/7/">7</a>'
    )


@pytest.mark.parametrize(
    "text",
    ["claims 12", "reclaim 12", "claim twelve", "12 claims", "claim 1234567890123456789", ""],
)
def test_text_that_only_resembles_a_claim_is_not_linked(text: str) -> None:
    assert linked(text) == text


def test_a_moment_becomes_a_time_element() -> None:
    soon = timezone.now() + timedelta(hours=1)
    said = linked(f"by {soon:%Y-%m-%d %H:%M} UTC at the latest")
    found = re.fullmatch(r'by <time [^>]*datetime="([^"]+)"[^>]*>[^<]+</time> at the latest', said)
    assert found is not None, said
    assert datetime.fromisoformat(found[1]) == soon.replace(second=0, microsecond=0)
    assert "<time" in linked(f"{datetime(2020, 2, 29, 8, 5, tzinfo=UTC):%Y-%m-%d %H:%M} UTC")


def test_an_invalid_date_stays_plain_text() -> None:
    assert linked("2026-02-30 08:00 UTC") == "2026-02-30 08:00 UTC"


def test_user_text_never_becomes_markup() -> None:
    assert linked('locked: "<b>claim 3</b>" & more') == (
        'locked: &quot;&lt;b&gt;claim <a class="why in" '
        'href="/claims/3/">3</a>&lt;/b&gt;&quot; &amp; more'
    )


def test_a_message_is_lowered_inside_a_sentence() -> None:
    assert (lowered("Claim 3 ends"), lowered("")) == ("claim 3 ends", "")
