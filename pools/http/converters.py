"""Parts of addresses. Importing this module registers them."""

from django.urls import register_converter


class NameConverter:
    """Names of pools: anything else is no address."""

    regex = "[A-Za-z0-9._-]{1,63}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


class IdConverter:
    """What a bigint holds; a longer number is no address."""

    regex = "[0-9]{1,18}"

    def to_python(self, value: str) -> int:
        return int(value)

    def to_url(self, value: int) -> str:
        return str(value)


class VariableConverter(NameConverter):
    """Names of variables of an environment."""

    regex = "[A-Za-z_][A-Za-z0-9_]{0,62}"


register_converter(NameConverter, "name")
register_converter(IdConverter, "id")
register_converter(VariableConverter, "variable")
