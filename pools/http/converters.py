"""Converters of URL paths. Importing this module registers them."""

from django.urls import register_converter


class NameConverter:
    """Names of pools. Other texts give 404."""

    regex = "[A-Za-z0-9._-]{1,63}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


class IdConverter:
    """Numbers that fit into a bigint. Longer numbers give 404."""

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
