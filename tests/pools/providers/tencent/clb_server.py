"""A strict fake of the CLB API behind HTTP on loopback, for the SDK and every other client.

It verifies the TC3-HMAC-SHA256 signature, the version and the parameters of each call, counts calls
against the limits of the API, and keeps a log. Faults can meet any call, before or after its
effect.
"""

import hashlib
import hmac
import json
import re
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.pools.providers.tencent import clb_reads, clb_writes
from tests.pools.providers.tencent.clb_parameters import check_parameters
from tests.pools.providers.tencent.clb_world import ClbWorld, Fault, LoggedCall, Refusal

SERVICE, VERSION = "clb", "2018-03-17"
CLOCK_SKEW = 300  # seconds
CALLS_PER_SECOND = 20.0
AUTHORIZATION = re.compile(
    r"TC3-HMAC-SHA256 Credential=([^/]+)/([\d-]+)/([a-z]+)/tc3_request, "
    r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})"
)
READS: dict[str, Callable[[ClbWorld, dict[str, Any]], dict[str, Any]]] = {
    "DescribeLoadBalancers": clb_reads.describe_load_balancers,
    "DescribeListeners": clb_reads.describe_listeners,
    "DescribeTargets": clb_reads.describe_targets,
    "DescribeTargetHealth": clb_reads.describe_target_health,
    "DescribeTaskStatus": clb_reads.describe_task_status,
    "DescribeQuota": clb_reads.describe_quota,
}
WRITES: dict[str, Callable[[ClbWorld, dict[str, Any], str], dict[str, Any]]] = {
    "CreateLoadBalancer": clb_writes.create_load_balancer,
    "DeleteLoadBalancer": clb_writes.delete_load_balancer,
    "CreateListener": clb_writes.create_listener,
    "DeleteLoadBalancerListeners": clb_writes.delete_listeners,
    "BatchRegisterTargets": clb_writes.register_targets,
    "BatchDeregisterTargets": clb_writes.deregister_targets,
}


class ClbServer:
    """Serves a world until `close`."""

    def __init__(self, world: ClbWorld) -> None:
        self._world = world
        self.spy: Callable[[Message, bytes], None] | None = None  # sees each call first
        self._port = 0
        self.open()

    def open(self) -> None:
        self._server = _Server(("127.0.0.1", self._port), _Handler)
        self._server.owner, self._server.world = self, self._world
        self._port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def show(self, world: ClbWorld) -> None:
        """Serve another world from now on."""
        self._world = self._server.world = world

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    owner: ClbServer
    world: ClbWorld


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one packet
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        world, request = self.server.world, str(uuid.uuid4())
        if (spy := self.server.owner.spy) is not None:
            spy(self.headers, body)
        if world.latency:
            time.sleep(world.latency)
        try:
            answer = _answer(world, self.headers, self.path, body, request)
        except Dropped:
            self.close_connection = True
            return
        text = json.dumps({"Response": {**answer, "RequestId": request}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


class Dropped(Exception):
    """The connection closes without an answer."""


def _answer(
    world: ClbWorld, headers: Message, path: str, body: bytes, request: str
) -> dict[str, Any]:
    action = headers.get("X-TC-Action", "")
    with world.lock:
        call = LoggedCall(action, {}, time.monotonic())
        world.log.append(call)
        try:
            account = verify(world, headers, path, body)
            parameters = json.loads(body)
            call.parameters = parameters if isinstance(parameters, dict) else {}
            return perform(world, account, action, parameters, request)
        except Refusal as refusal:
            call.code = refusal.code
            return {"Error": {"Code": refusal.code, "Message": refusal.message}}
        except Dropped:
            call.code = "dropped"
            raise


def perform(
    world: ClbWorld, account: str, action: str, parameters: Any, request: str
) -> dict[str, Any]:
    """The answer to a verified call. Raises Refusal or Dropped. The caller has locked the world."""
    fault = _next_fault(world, action, parameters)
    if fault is not None and not fault.is_after:
        _strike(fault)
    _check_rate(world, account, action)
    if world.allowed is not None and action not in world.allowed:
        raise Refusal("UnauthorizedOperation", f"not authorized to perform {action}")
    check_parameters(action, parameters)
    world.settle()
    if action in READS:
        answer = READS[action](world, parameters)
    else:
        answer = WRITES[action](world, parameters, request)
    if fault is not None and fault.is_after:
        _strike(fault)
    return answer


def _next_fault(world: ClbWorld, action: str, parameters: Any) -> Fault | None:
    for fault in world.faults:
        if fault.action not in ("*", action):
            continue
        if fault.port and fault.port not in _ports_of(world, parameters):
            continue
        if fault.skip > 0:
            fault.skip -= 1
            continue
        fault.times -= 1
        if fault.times <= 0:
            world.faults.remove(fault)
        return fault
    return None


def _ports_of(world: ClbWorld, parameters: Any) -> set[int]:
    """The ports that a call names, itself or by their listeners."""
    ids = {
        *parameters.get("ListenerIds", ()),
        *(each["ListenerId"] for each in parameters.get("Targets", ())),
    }
    listed = {each.port for each in world.listeners() if each.id in ids}
    return listed | set(parameters.get("Ports", ()))


def _strike(fault: Fault) -> None:
    if fault.run is not None:
        fault.run()
    if fault.code == "":
        raise Dropped
    if fault.code is not None:
        raise Refusal(fault.code, fault.message)


def _check_rate(world: ClbWorld, account: str, action: str) -> None:
    if world.calls_per_second is None:
        return
    now = time.monotonic()
    most = world.calls_per_second
    left, since = world.buckets.get((account, action), (most, now))
    left = min(most, left + (now - since) * most)
    is_over = left < 1
    world.buckets[account, action] = (left if is_over else left - 1, now)
    if is_over:
        raise Refusal("RequestLimitExceeded", f"more than {most:g} calls of {action} a second")


def verify(world: ClbWorld, headers: Message, path: str, body: bytes) -> str:
    """The account that signed the call. Raises Refusal."""
    if headers.get("X-TC-Version") != VERSION:
        raise Refusal("NoSuchVersion", f"no version {headers.get('X-TC-Version')}")
    if headers.get("X-TC-Region") != world.region:
        raise Refusal("UnsupportedRegion", f"no region {headers.get('X-TC-Region')}")
    match = AUTHORIZATION.fullmatch(headers.get("Authorization", ""))
    if match is None:
        raise Refusal("AuthFailure.SignatureFailure", "the Authorization header has no signature")
    secret_id, date, service, signed, signature = match.groups()
    secret = world.secrets.get(secret_id)
    if secret is None:
        raise Refusal("AuthFailure.SecretIdNotFound", "the SecretId is not found")
    if world.tokens.get(secret_id, "") != headers.get("X-TC-Token", ""):
        raise Refusal("AuthFailure.TokenFailure", "the token is wrong")
    stamp = headers.get("X-TC-Timestamp", "")
    if not stamp.isdigit() or abs(int(stamp) - time.time()) > CLOCK_SKEW:
        raise Refusal("AuthFailure.SignatureExpire", "the timestamp is too old")
    if datetime.fromtimestamp(int(stamp), UTC).strftime("%Y-%m-%d") != date or service != SERVICE:
        raise Refusal("AuthFailure.SignatureFailure", "the credential scope is wrong")
    names = signed.split(";")
    if not {"content-type", "host"} <= set(names) or names != sorted(names):
        raise Refusal("AuthFailure.SignatureFailure", "content-type and host are not signed")
    canonical_headers = "".join(f"{name}:{headers.get(name, '').strip()}\n" for name in names)
    digest = hashlib.sha256(body).hexdigest()
    canonical = f"POST\n{path}\n\n{canonical_headers}\n{signed}\n{digest}"
    scope = f"{date}/{service}/tc3_request"
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    to_sign = f"TC3-HMAC-SHA256\n{stamp}\n{scope}\n{hashed}"
    key = f"TC3{secret}".encode()
    for part in (date, service, "tc3_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    expected = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected, signature):
        raise Refusal("AuthFailure.SignatureFailure", "the signature does not match")
    return secret_id
