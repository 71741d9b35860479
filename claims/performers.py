"""Operations that claims write: registered for whoever performs them."""

from claims.lifecycle.deadline_notices import send_notice as send_notice
