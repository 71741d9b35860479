"""The query protocols of AWS, as botocore's service models describe them: forms become parameters,
answers become XML. Validation is that of botocore's own validator, and stricter for texts.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from xml.sax.saxutils import escape

import botocore.session
from botocore.model import OperationModel, Shape
from botocore.validate import ParamValidator

SERVICES = ("elbv2", "ec2", "sts")
REQUEST_ID = "00000000-0000-0000-0000-000000000000"
TAG_TEXT = re.compile(r"[\w\s.:/=+\-@]*")


@cache
def service_model(service: str) -> Any:
    return botocore.session.get_session().get_service_model(service)


@cache
def find_operation(version: str, action: str) -> OperationModel | None:
    for service in SERVICES:
        model = service_model(service)
        if model.api_version == version and action in model.operation_names:
            found: OperationModel = model.operation_model(action)
            return found
    return None


@cache
def error_codes() -> Mapping[str, int]:
    """The HTTP status of each error code that the model of ELBv2 declares."""
    model = service_model("elbv2")
    shapes = (
        shape
        for name in model.operation_names
        for shape in model.operation_model(name).error_shapes
    )
    found = {shape.metadata["error"]["code"]: shape.metadata["error"] for shape in shapes}
    return {code: error["httpStatusCode"] for code, error in found.items()}


def decode(operation: OperationModel, form: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of a form. Raises ValueError for a field that the model does not know, and
    for a value that the model does not allow.
    """
    left = {name: value for name, value in form.items() if name not in ("Action", "Version")}
    is_ec2 = operation.service_model.protocol == "ec2"
    shape = operation.input_shape
    found = {} if shape is None else _Reader(left, is_ec2).read_structure(shape, "")
    if left:
        raise ValueError(f"unknown parameters: {', '.join(sorted(left))}")
    if shape is not None:
        report = ParamValidator().validate(found, shape)
        if report.has_errors():
            raise ValueError(report.generate_report())
        for fault in _list_faults(shape, found, ""):
            raise ValueError(fault)
    return found


class _Reader:
    def __init__(self, left: dict[str, str], is_ec2: bool) -> None:
        self.left, self.is_ec2 = left, is_ec2

    def read_structure(self, shape: Shape, prefix: str) -> dict[str, Any]:
        found = {}
        for name, member in shape.members.items():
            value = self.read(member, f"{prefix}.{self._name(name, member)}".lstrip("."))
            if value is not None:
                found[name] = value
        return found

    def _name(self, name: str, member: Shape) -> str:
        if not self.is_ec2:
            return str(member.serialization.get("name", name))
        given = member.serialization.get("queryName")
        if given is None:
            given = member.serialization.get("name", name)
            given = given[0].upper() + given[1:]
        return str(given)

    def read(self, shape: Shape, place: str) -> Any:
        if shape.type_name == "structure":
            return self.read_structure(shape, place) or None
        if shape.type_name == "list":
            return self._read_list(shape, place)
        text = self.left.pop(place, None)
        return None if text is None else _read_text(shape, text, place)

    def _read_list(self, shape: Shape, place: str) -> list[Any] | None:
        if self.left.get(place) == "":
            del self.left[place]
            return []
        if not self.is_ec2 and not shape.serialization.get("flattened"):
            place = f"{place}.{shape.member.serialization.get('name', 'member')}"
        found: list[Any] = []
        while (each := self.read(shape.member, f"{place}.{len(found) + 1}")) is not None:
            found.append(each)
        return found or None


def _read_text(shape: Shape, text: str, place: str) -> object:
    if shape.type_name in ("integer", "long"):
        if not re.fullmatch(r"-?[0-9]+", text):
            raise ValueError(f"{place}: {text!r} is no integer")
        return int(text)
    if shape.type_name == "boolean":
        if text not in ("true", "false"):
            raise ValueError(f"{place}: {text!r} is no boolean")
        return text == "true"
    return text


def _list_faults(shape: Shape, value: Any, place: str) -> Iterator[str]:
    """Faults that botocore leaves to the service: enumerations, lengths, patterns, most items."""
    if shape.type_name == "structure":
        for name, each in value.items():
            yield from _list_faults(shape.members[name], each, f"{place}.{name}".lstrip("."))
    elif shape.type_name == "list":
        for i, each in enumerate(value):
            yield from _list_faults(shape.member, each, f"{place}[{i}]")
    elif shape.type_name == "string":
        if shape.metadata.get("enum") and value not in shape.metadata["enum"]:
            yield f"{place}: {value!r} is not one of {shape.metadata['enum']}"
        if len(value) > shape.metadata.get("max", len(value)):
            yield f"{place}: {len(value)} characters are too many"
        if shape.name in ("TagKey", "TagValue") and not TAG_TEXT.fullmatch(value):
            yield f"{place}: {value!r} has characters that no tag may have"
    elif shape.type_name == "integer" and value > shape.metadata.get("max", value):
        yield f"{place}: {value} is too large"


def encode(operation: OperationModel, result: Mapping[str, Any]) -> bytes:
    """The answer as XML. Raises KeyError for a field that the model does not declare."""
    name, shape = operation.name, operation.output_shape
    if operation.service_model.protocol == "ec2":
        inside = "" if shape is None else "".join(_encode_members(shape, result, is_ec2=True))
        body = f"<requestId>{REQUEST_ID}</requestId>{inside}"
    else:
        inside = "" if shape is None else "".join(_encode_members(shape, result, is_ec2=False))
        body = (
            f"<{name}Result>{inside}</{name}Result>"
            f"<ResponseMetadata><RequestId>{REQUEST_ID}</RequestId></ResponseMetadata>"
        )
    namespace = operation.service_model.metadata.get("xmlNamespace", "")
    return f'<{name}Response xmlns="{namespace}">{body}</{name}Response>'.encode()


def encode_error(code: str, message: str, *, is_ec2: bool = False) -> bytes:
    error = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    if is_ec2:
        return (
            f"<Response><Errors><Error>{error}</Error></Errors>"
            f"<RequestID>{REQUEST_ID}</RequestID></Response>"
        ).encode()
    return (
        f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error>"
        f"<RequestId>{REQUEST_ID}</RequestId></ErrorResponse>"
    ).encode()


def _encode_members(shape: Shape, values: Mapping[str, Any], *, is_ec2: bool) -> Iterator[str]:
    for name, value in values.items():
        member = shape.members[name]
        if value is not None:
            yield _encode_value(member, value, str(member.serialization.get("name", name)), is_ec2)


def _encode_value(shape: Shape, value: Any, tag: str, is_ec2: bool) -> str:
    if shape.type_name == "structure":
        inside = "".join(_encode_members(shape, value, is_ec2=is_ec2))
    elif shape.type_name == "list":
        item = str(shape.member.serialization.get("name", "item" if is_ec2 else "member"))
        inside = "".join(_encode_value(shape.member, each, item, is_ec2) for each in value)
    elif isinstance(value, bool):
        inside = str(value).lower()
    else:
        inside = escape(str(value))
    return f"<{tag}>{inside}</{tag}>"
