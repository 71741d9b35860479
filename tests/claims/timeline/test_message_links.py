"""Sentences about claims on pages: what they name can be followed, and nothing that somebody
wrote becomes markup.
"""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from claims.templatetags.claims import linked, lowered


def test_a_claim_that_is_named_is_a_link() -> None:
    assert linked("Claim 12 holds it, then claim 7") == (
        'Claim <a class="why in" href="/claims/12/">12</a> holds it, then claim <a class="why in" '
        'href="/claims/7/">7</a>'
    )


@pytest.mark.parametrize(
    "text",
    ["claims 12", "reclaim 12", "claim twelve", "12 claims", "claim 1234567890123456789", ""],
)
def test_what_only_looks_like_one_is_not(text: str) -> None:
    assert linked(text) == text


def test_moments_are_told_in_the_readers_zone() -> None:
    soon = timezone.now() + timedelta(hours=1)
    said = linked(f"by {soon:%Y-%m-%d %H:%M} UTC at the latest")
    found = re.fullmatch(r'by <time [^>]*datetime="([^"]+)"[^>]*>[^<]+</time> at the latest', said)
    assert found is not None, said
    assert datetime.fromisoformat(found[1]) == soon.replace(second=0, microsecond=0)
    assert "<time" in linked(f"{datetime(2020, 2, 29, 8, 5, tzinfo=UTC):%Y-%m-%d %H:%M} UTC")


def test_a_day_that_no_calendar_has_stays_as_somebody_wrote_it() -> None:
    assert linked("2026-02-30 08:00 UTC") == "2026-02-30 08:00 UTC"


def test_words_of_somebody_never_become_markup() -> None:
    assert linked('locked: "<b>claim 3</b>" & more') == (
        'locked: &quot;&lt;b&gt;claim <a class="why in" '
        'href="/claims/3/">3</a>&lt;/b&gt;&quot; &amp; more'
    )


def test_inside_of_a_sentence() -> None:
    assert (lowered("Claim 3 ends"), lowered("")) == ("claim 3 ends", "")
