"""A strict ELBv2 in memory behind real HTTP on loopback: `with serve(cloud) as address:`.

A server outlives its cloud: the next cloud gets it, with its address. So clients of boto3 need not
be made anew for each test, which takes longer than most tests.

It checks every parameter against botocore's service model, keeps AWS's rules (duplicate ports,
quotas, one load balancer for a target group, protocols, token buckets, health states, pages), fails
any call on order, and logs all calls. EC2's DescribeSubnets and STS's GetCallerIdentity are at the
same address.
"""

import atexit
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl

from tests.pools.providers.aws import elbv2_balancers, elbv2_groups, elbv2_listeners
from tests.pools.providers.aws.elbv2_cloud import Cloud, Unanswered
from tests.pools.providers.aws.elbv2_objects import Refusal
from tests.pools.providers.aws.query_wire import (
    decode,
    encode,
    encode_error,
    error_codes,
    find_operation,
)

OPERATIONS = elbv2_balancers.OPERATIONS | elbv2_groups.OPERATIONS | elbv2_listeners.OPERATIONS
# Codes that AWS answers and the model does not declare.
COMMON_CODES = {
    "ValidationError", "AccessDenied", "InvalidClientTokenId", "ThrottlingException", "Throttling",
    "RequestLimitExceeded", "InternalFailure", "ServiceUnavailable", "InvalidSubnetID.NotFound",
    "ExpiredToken", "SignatureDoesNotMatch", "UnsupportedCertificate",
}  # fmt: skip
# AWS blames itself.
OWN_FAULTS = {"InternalFailure": 500, "ServiceUnavailable": 503}
CREDENTIAL = re.compile(r"Credential=([^/]+)/[0-9]+/([^/]+)/([^/]+)/aws4_request")


class QueryHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer is one packet: head and body apart would wait 40 ms for an acknowledgement.
    disable_nagle_algorithm = True
    wbufsize = -1
    server: "QueryServer"

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        fields = dict(parse_qsl(form, keep_blank_values=True, strict_parsing=True))
        operation = find_operation(fields.get("Version", ""), fields.get("Action", ""))
        if operation is None:
            self._send(400, encode_error("InvalidAction", f"{fields.get('Action')} is unknown"))
            return
        is_ec2 = operation.service_model.protocol == "ec2"
        try:
            key = self._read_credential()
            params = self._decode(operation, fields)
            body = encode(operation, self.server.cloud.perform(operation.name, params, key))
        except Unanswered:
            self.close_connection = True
        except Refusal as refusal:
            is_known = refusal.code in error_codes().keys() | COMMON_CODES
            if not is_known and not refusal.is_injected:
                raise RuntimeError(f"AWS has no error {refusal.code}") from None
            known = error_codes() | OWN_FAULTS
            status = known.get(refusal.code, refusal.status)
            self._send(status, encode_error(refusal.code, str(refusal), is_ec2=is_ec2))
        else:
            self._send(200, body)

    def _decode(self, operation, fields):  # type: ignore[no-untyped-def]
        try:
            return decode(operation, fields)
        except ValueError as error:
            raise Refusal("ValidationError", str(error)) from None

    def _read_credential(self) -> str:
        """The access key. The signature must be for the region of the cloud."""
        match = CREDENTIAL.search(self.headers.get("Authorization", ""))
        if match is None:
            raise Refusal("AccessDenied", "The request is not signed.", 403)
        if match[2] != self.server.cloud.region:
            raise Refusal("SignatureDoesNotMatch", f"{match[2]} is not the region.", 403)
        return match[1]

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """The cloud keeps its own log."""


class QueryServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        self.cloud = Cloud()
        self.errors: list[BaseException] = []
        super().__init__(("127.0.0.1", 0), QueryHandler)
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()
        atexit.register(self.end)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no error of the cloud."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, ConnectionError):
            self.errors.append(error)

    def end(self) -> None:
        if self.thread.is_alive():  # not in a forked child
            self.shutdown()
            self.thread.join()
        self.server_close()


_idle: list[QueryServer] = []  # without a cloud


@contextmanager
def serve(cloud: Cloud) -> Iterator[str]:
    """The address of the cloud."""
    cloud.operations = OPERATIONS
    server = _idle.pop() if _idle else QueryServer()
    server.cloud, server.errors = cloud, []
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        _idle.append(server)
    if server.errors:
        raise server.errors[0]
