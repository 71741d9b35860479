"""A scheduler and a kubelet for tests: pods of a namespace get a node and an address and run as
processes on this machine.

There are no containers: the mounts of a pod are folders on this machine, and their paths are put
into the pod's variables. A pod's processes end together
(tests.kubernetes_cluster.container_init), as they do in a container. The kubelet reads from and
writes to the API server only.
"""

import base64
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.kubernetes_cluster.clusters import STRATEGIC, Thing, Unanswered
from tests.kubernetes_cluster.namespace import Space

ROOT = Path(__file__).resolve().parents[2]
AGAIN = 0.2  # seconds after which a server that is away is asked again
CYCLE = 20  # seconds of one watch
DEFAULT_COMMAND = ["python3", "-c", "import signal; signal.pause()"]


@dataclass
class Running:
    """One pod, by its uid."""

    name: str
    uid: str
    folder: Path
    process: subprocess.Popen[bytes]
    number: int
    ending: threading.Event = field(default_factory=threading.Event)  # its deletion has begun
    ended: threading.Event = field(default_factory=threading.Event)
    log: str = ""


class Kubelet:
    def __init__(self, space: Space, *, node: str = "n1") -> None:
        self.space, self.node = space, node
        self.folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="berth-kubelet-"))
        self.folder.chmod(0o755)  # tasks may be other users than we are
        self.running: dict[str, Running] = {}
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.lost: set[str] = set()  # names of pods on nodes without a connection
        self.held = threading.Event()  # set: no pod is started
        self.refused: dict[str, str] = {}  # images that can't be had, and why
        self.started: list[str] = []  # names of pods, each time one was started
        self.killed: list[str] = []  # names of pods whose processes did not end within their grace
        self.errors: list[BaseException] = []
        self.threads: list[threading.Thread] = []
        self.stream: http.client.HTTPConnection | None = None

    # -- life --------------------------------------------------------------------------------------
    def __enter__(self) -> "Kubelet":
        self.spawn(self.follow)
        return self

    def __exit__(self, *_: Any) -> None:
        self.stopped.set()
        self.hang_up()
        for running in list(self.running.values()):
            running.process.send_signal(signal.SIGUSR1)
        for thread in self.threads:
            thread.join(30)
        shutil.rmtree(self.folder, ignore_errors=True)
        assert self.errors == []

    def spawn(self, what: Any, *arguments: Any) -> None:
        def guarded() -> None:
            try:
                what(*arguments)
            except BaseException as error:
                self.errors.append(error)  # told when the test leaves us
                raise

        thread = threading.Thread(target=guarded, daemon=True, name=f"kubelet-{what.__name__}")
        self.threads = [known for known in self.threads if known.is_alive()] + [thread]
        thread.start()

    # -- what there is to do -----------------------------------------------------------------------
    def follow(self) -> None:
        """Lists the pods, then watches them; after an error it lists again. A pod that a list
        lacks has gone: its processes end.
        """
        while not self.stopped.is_set():
            try:
                status, found = self.space.world.ask("GET", f"{self.space.path}/pods")
                if status == 200:
                    self.forget_others({pod["metadata"]["uid"] for pod in found["items"]})
                    for pod in found["items"]:
                        self.see(pod)
                    self.watch(found["metadata"]["resourceVersion"])
                    continue
            except (Unanswered, OSError, http.client.HTTPException, ValueError):
                pass  # it comes back
            self.stopped.wait(AGAIN)

    def watch(self, version: str) -> None:
        world = self.space.world
        at = urlsplit(world.url)
        stream: http.client.HTTPConnection
        if at.scheme == "https":
            context = ssl.create_default_context(cafile=world.ca)
            stream = http.client.HTTPSConnection(
                "127.0.0.1", at.port, timeout=CYCLE + 30, context=context
            )
        else:
            stream = http.client.HTTPConnection("127.0.0.1", at.port, timeout=CYCLE + 30)
        self.stream = stream
        path = f"{self.space.path}/pods?watch=1&timeoutSeconds={CYCLE}&resourceVersion={version}"
        try:
            stream.request(
                "GET", path, headers={"Authorization": f"Bearer {world.tokens['admin']}"}
            )
            answer = stream.getresponse()
            while not self.stopped.is_set() and (line := answer.readline()):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                if event["type"] == "DELETED":
                    self.forget(event["object"]["metadata"]["uid"])
                else:
                    self.see(event["object"])
        finally:
            self.stream = None
            stream.close()

    def hang_up(self) -> None:
        with suppress(OSError, AttributeError):
            self.stream.sock.shutdown(2)  # type: ignore[union-attr]  (it may go in between)

    def see(self, pod: Thing) -> None:
        meta = pod["metadata"]
        if meta["name"] in self.lost:
            return
        running = self.running.get(meta["uid"])
        if running is None:
            if "deletionTimestamp" in meta:
                self.confirm(meta["name"], meta["uid"])
            elif pod["status"].get("phase") == "Pending" and not self.held.is_set():
                self.begin(pod)
        elif "deletionTimestamp" in meta and not running.ending.is_set():
            running.ending.set()
            self.spawn(self.end, running, float(meta.get("deletionGracePeriodSeconds") or 0))

    def forget(self, uid: str) -> None:
        """Ends the processes of a pod whose record is gone."""
        with self.lock:
            running = self.running.get(uid)
        if running is not None and running.name not in self.lost:
            running.process.send_signal(signal.SIGUSR1)

    def forget_others(self, there: set[str]) -> None:
        for uid in set(self.running) - there:
            self.forget(uid)

    # -- a pod's life ------------------------------------------------------------------------------
    def begin(self, pod: Thing) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        try:
            secrets = self.read_secrets(pod)
            if not pod["spec"].get("nodeName"):
                self.space.bind(name, self.node)
        except (Unanswered, AssertionError):
            # Gone meanwhile, or its Secret is not there yet: looked at again with what comes next.
            return
        if (why := self.refused.get(pod["spec"]["containers"][0]["image"])) is not None:
            if not pod["status"].get("containerStatuses"):
                self.refuse(pod, why)
            return
        with self.lock:
            if uid in self.running or self.stopped.is_set():
                return
            folder = self.folder / uid
            mounts = make_mounts(pod, folder, secrets)
            running = Running(name, uid, folder, start(pod, folder, mounts), len(self.started))
            self.running[uid] = running
            self.started.append(name)
        number = running.number
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        self.tell(
            running,
            "Running",
            state,
            podIP=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
        )
        # After that word: a short pod would be told of as running after its end.
        self.spawn(self.attend, running)

    def refuse(self, pod: Thing, why: str) -> None:
        """Marks a pod that waits on its node for its image."""
        container = pod["spec"]["containers"][0]
        waits = {
            "name": container["name"],
            "ready": False,
            "restartCount": 0,
            "image": container["image"],
            "imageID": "",
        }
        waits["state"] = {"waiting": {"reason": "ImagePullBackOff", "message": why}}
        body = {
            "metadata": {"uid": pod["metadata"]["uid"]},
            "status": {"phase": "Pending", "containerStatuses": [waits]},
        }
        path = f"{self.space.path}/pods/{pod['metadata']['name']}/status"
        self.until_heard(lambda: self.space.world.ask("PATCH", path, body, content=STRATEGIC)[0])

    def read_secrets(self, pod: Thing) -> dict[str, Thing]:
        found = {}
        for volume in pod["spec"].get("volumes") or []:
            if "secret" in volume:
                name = volume["secret"]["secretName"]
                secret = self.space.get(name, "secrets")
                assert secret is not None or volume["secret"].get("optional"), (
                    f"there is no Secret {name}"
                )
                found[name] = secret or {}
        return found

    def attend(self, running: Running) -> None:
        """Until it has ended by itself or by us."""
        code = running.process.wait()
        running.log = (running.folder / "log").read_text(errors="replace")[-20_000:]
        running.ended.set()
        with self.lock:
            del self.running[running.uid]
        shutil.rmtree(running.folder, ignore_errors=True)
        if self.stopped.is_set() or running.name in self.lost:
            return
        self.tell(
            running,
            "Failed" if code else "Succeeded",
            {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}},
        )
        if running.ending.is_set():
            self.confirm(running.name, running.uid)

    def end(self, running: Running, grace: float) -> None:
        running.process.send_signal(signal.SIGTERM)
        if not running.ended.wait(grace):
            self.killed.append(running.name)
            running.process.send_signal(signal.SIGUSR1)

    def confirm(self, name: str, uid: str) -> None:
        """The last word of a deletion, until it is heard."""
        self.until_heard(lambda: self.space.delete(name, grace=0, uid=uid))

    def tell(self, running: Running, phase: str, state: Thing, **more: Any) -> None:
        is_up = phase == "Running"
        container = {
            "name": "agent",
            "ready": is_up,
            "started": is_up,
            "restartCount": 0,
            "image": "x",
            "imageID": "",
            "state": state,
        }
        conditions = [
            {"type": kind, "status": "True" if is_up else "False"}
            for kind in ("Ready", "ContainersReady")
        ]
        status = {
            "phase": phase,
            "conditions": conditions,
            "containerStatuses": [container],
            **more,
        }
        body = {"metadata": {"uid": running.uid}, "status": status}
        path = f"{self.space.path}/pods/{running.name}/status"
        self.until_heard(lambda: self.space.world.ask("PATCH", path, body, content=STRATEGIC)[0])

    def until_heard(self, say: Any) -> None:
        while not self.stopped.is_set():
            try:
                status = say()
            except Unanswered:
                status = 503
            if status < 500 and status != 429:
                return
            self.stopped.wait(AGAIN)

    # -- for tests ---------------------------------------------------------------------------------
    def kill(self, name: str) -> None:
        """All of a pod's processes at once, as a kernel that is short of memory does it."""
        for running in list(self.running.values()):
            if running.name == name:
                running.process.send_signal(signal.SIGUSR1)

    def logs(self) -> dict[str, str]:
        found = {}
        for running in list(self.running.values()):
            with suppress(OSError):
                found[running.name] = (running.folder / "log").read_text(errors="replace")[-1500:]
        return found


def make_mounts(pod: Thing, folder: Path, secrets: dict[str, Thing]) -> dict[str, Path]:
    """Path in the pod -> folder here."""
    folder.mkdir(mode=0o755)
    volumes: dict[str, Path] = {}
    for volume in pod["spec"].get("volumes") or []:
        place = folder / volume["name"]
        place.mkdir(mode=0o777)
        place.chmod(0o777 if "emptyDir" in volume else 0o755)
        if "secret" in volume:
            mode = volume["secret"].get("defaultMode", 0o644)
            for key, value in (secrets[volume["secret"]["secretName"]].get("data") or {}).items():
                with open(os.open(place / key, os.O_CREAT | os.O_WRONLY, mode), "wb") as file:
                    file.write(base64.b64decode(value))
        volumes[volume["name"]] = place
    mounts = pod["spec"]["containers"][0].get("volumeMounts") or []
    return {
        mount["mountPath"]: volumes[mount["name"]] for mount in mounts if mount["name"] in volumes
    }


def translate(text: str, mounts: dict[str, Path]) -> str:
    for path, folder in mounts.items():
        if text == path or text.startswith(f"{path}/"):
            return str(folder) + text[len(path) :]
    return text


def start(pod: Thing, folder: Path, mounts: dict[str, Path]) -> subprocess.Popen[bytes]:
    container = pod["spec"]["containers"][0]
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
    }
    for variable in container.get("env") or []:
        environment[variable["name"]] = translate(variable.get("value", ""), mounts)
    if "/tmp" in mounts:
        environment["TMPDIR"] = str(mounts["/tmp"])
    words = [*(container.get("command") or []), *(container.get("args") or [])] or DEFAULT_COMMAND
    command = [
        sys.executable,
        "-S",
        str(ROOT / "tests/kubernetes_cluster/container_init.py"),
        *(translate(word, mounts) for word in words),
    ]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
