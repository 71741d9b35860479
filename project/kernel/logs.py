"""Log lines: `key=value` for people, JSON for machines. The last step removes secrets."""

import re
import sys

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

# Passwords in URLs, our own tokens, and values of headers and fields that carry secrets.
SECRET = re.compile(
    # A password may contain / and @: it ends before the last @ of its word, or before the first @
    # if it contains a quote.
    r"(?P<url>://[^\s:/@]*:)(?:[^\s\"'<>]+(?=@)|\S+?(?=@))|(?P<token>\bberth(?:m_[0-9]+)?_[A-Za-z0-9]{4})[A-Za-z0-9_-]{8,}|(?P<field>(?i:authorization|cookie|password|passwd|secret|token|sessionid|csrftoken)[\"']?\s*[=:]\s*[\"']?(?i:(?:bearer|token|basic)\s+)?)[^\s\"',;&]{6,}"
)


def strip_secrets(text: str) -> str:
    return SECRET.sub(lambda found: f"{found['url'] or found['token'] or found['field']}***", text)


def _clean(logger: WrappedLogger, name: str, line: str) -> str:
    return strip_secrets(line)


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(allow=["status_code"]),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]


def _key_value(logger: WrappedLogger, name: str, event: EventDict) -> str:
    """`12:04:05 warning  kernel.relay: text of the event  pool=7 …`, with the traceback below."""
    at, level = str(event.pop("timestamp"))[11:19], event.pop("level")
    source = str(event.pop("logger", "")).removeprefix("project.")
    trace = event.pop("exception", "")
    text = str(event.pop("event"))
    more = "".join(
        f" {key}={value!r}" if " " in str(value) else f" {key}={value}"
        for key, value in sorted(event.items())
    )
    return f"{at} {level:<8}{source}: {text}{more}" + (f"\n{trace}" if trace else "")


def logging_settings(*, as_json: bool, level: str = "INFO") -> dict[str, object]:
    """Django's LOGGING, with one handler for the loggers of structlog and the standard library."""
    structlog.configure(
        processors=[*_shared(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    last: list[Processor] = [
        structlog.processors.JSONRenderer(default=str) if as_json else _key_value,
        _clean,  # type: ignore[list-item]
    ]
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": _shared(),
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.format_exc_info,
                    *last,
                ],
            }
        },
        "handlers": {
            "out": {"class": "logging.StreamHandler", "stream": sys.stderr, "formatter": "line"}
        },
        "root": {"handlers": ["out"], "level": level},
        "loggers": {
            "django": {"handlers": [], "level": "INFO", "propagate": True},
            # Rejected requests are not logged, because their callers get the reason. Failures of
            # the server are logged with their tracebacks.
            "django.request": {"level": "ERROR"},
            "django.security.DisallowedHost": {"level": "CRITICAL"},
            "django.server": {"handlers": [], "level": "WARNING", "propagate": True},
            "uvicorn": {"level": "WARNING"},
            "celery": {"level": "WARNING"},
            "kombu": {"level": "WARNING"},
            "urllib3": {"level": "WARNING"},
        },
    }
