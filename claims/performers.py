"""Operations that claims write: registered for whoever performs them."""

from claims.runs.notices import send_notice as send_notice
