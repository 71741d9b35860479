"""`make` installs Berth step by step: an interrupted step heals by itself, and progress is
printed at once.
"""

import base64
import contextlib
import hashlib
import http.server
import importlib.metadata
import importlib.util
import io
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import LOOK_AGAIN

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("Makefile", ".ci", "requirements.txt", "requirements-dev.txt", "requirements-uv.txt")
INHERITED = (
    "PIP_",
    "UV_",
    "SSL_",
    "HTTP",
    "http",
    "NO_PROXY",
    "no_proxy",
    "PATH",
    "HOME",
    "XDG_CACHE_HOME",
    "LANG",
    "TMPDIR",
)
BLOCKED = "#!/bin/sh\necho begun\nread line < '%s'\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the install needs of a fresh clone."""
    into = tmp_path / "berth"
    into.mkdir()
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, into / name)
        else:
            shutil.copy(ROOT / name, into / name)
    return into


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(INHERITED)} | more


def make(checkout: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", f"PYTHON={sys.executable}", *arguments]
    return subprocess.run(
        command, cwd=checkout, env=environment(**more), capture_output=True, text=True, timeout=550
    )


def kill_when(checkout: Path, is_so: Callable[[], bool]) -> None:
    """Start an install and kill all of it at this moment."""
    command = ["make", "--no-print-directory", f"PYTHON={sys.executable}", "setup"]
    process = subprocess.Popen(
        command, cwd=checkout, env=environment(), start_new_session=True, stderr=subprocess.DEVNULL
    )
    try:
        while not is_so():
            assert process.poll() is None, "the install ended before the moment came"
            time.sleep(LOOK_AGAIN)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def count(venv: Path, pattern: str) -> int:
    """In its packages, while another process changes them."""
    with contextlib.suppress(FileNotFoundError):
        return len(list(venv.glob(f"lib/python*/site-packages/{pattern}")))
    return 0


def cut_off_record(venv: Path) -> None:
    """Leave a package as uv does where it is killed while it writes the list of its files."""
    record = max(venv.glob("lib/python*/site-packages/*.dist-info/RECORD"), key=when_changed)
    record.write_text(record.read_text().rpartition(",")[0])


def when_changed(path: Path) -> float:
    return path.stat().st_mtime


def list_installed(venv: Path) -> list[importlib.metadata.Distribution]:
    (packages,) = venv.glob("lib/python*/site-packages")
    return list(importlib.metadata.distributions(path=[str(packages)]))


def list_broken(venv: Path) -> list[str]:
    """Files that a package brought and that are not as it brought them. Compiled ones are made,
    not brought. Packages of one namespace may bring the same file, with different contents.
    """
    broken = []
    packages = list_installed(venv)
    times = Counter(str(file) for package in packages for file in package.files or [])
    for package in packages:
        for file in package.files or []:
            path = Path(str(file.locate()))
            if times[str(file)] > 1 and path.exists():
                continue
            if file.hash is None or path.suffix == ".pyc" or "bin" in path.parent.parts[-1:]:
                continue
            digest = (
                hashlib.new(file.hash.mode, path.read_bytes()).digest() if path.exists() else b""
            )
            if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
                broken.append(str(file))
    return broken


@pytest.mark.slow
def test_install_killed_at_any_step_heals_by_itself(checkout: Path) -> None:
    venv = checkout / ".venv"
    kill_when(checkout, lambda: count(venv, "pip") > 0)
    kill_when(checkout, lambda: count(venv, "uv") > 0)
    (venv / "bin" / "uv").write_text("")  # as pip leaves it where it is interrupted a moment later
    kill_when(checkout, lambda: count(venv, "*.dist-info") > 20)
    cut_off_record(venv)
    done = make(checkout, "setup")
    assert done.returncode == 0, done.stderr
    assert "the last time was interrupted" in done.stderr
    assert list_broken(venv) == []
    wanted = {
        line.split("==")[0]
        for line in (ROOT / "requirements.txt").read_text().splitlines()
        if "==" in line and ";" not in line
    }
    assert wanted <= {
        package.metadata["Name"].lower().replace("_", "-") for package in list_installed(venv)
    }
    assert make(checkout, "setup").stdout.strip() == "make: Nothing to be done for 'setup'."


@pytest.fixture
def blocked(checkout: Path) -> Path:
    """An environment that looks installed, whose python waits until the test opens the gate."""
    gate = checkout / "gate"
    os.mkfifo(gate)
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(BLOCKED % gate)
    python.chmod(0o755)
    for stamp in (".made", ".uv", ".run", ".dev"):
        (checkout / ".venv" / stamp).touch()
    return gate


@pytest.mark.parametrize("target", ["up", "test"])
def test_first_line_is_printed_before_anything_is_loaded(
    checkout: Path, blocked: Path, target: str
) -> None:
    command = ["make", "--no-print-directory", target]
    with subprocess.Popen(
        command, cwd=checkout, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("[make] starting ")
        assert process.stdout.readline() == "begun\n"
        blocked.write_text("go\n")
    assert process.returncode == 0


def test_install_reports_progress_before_it_ends(checkout: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # Making the environment waits here.
    (tmp_path / "ensurepip.py").write_text(f"open({str(gate)!r}).read()\n")
    command = ["make", "--no-print-directory", f"PYTHON={sys.executable}", "setup"]
    outside = environment(PYTHONPATH=str(tmp_path))
    with subprocess.Popen(
        command,
        cwd=checkout,
        env=outside,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"[make] making {checkout}/.venv\n"
        os.killpg(process.pid, signal.SIGKILL)


def test_read_only_checkout_is_named_with_the_way_out(checkout: Path) -> None:
    """Root may write to every folder but those of the kernel."""
    is_root = os.geteuid() == 0
    checkout.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        done = make(checkout, "setup", *(["VENV=/proc/venv"] if is_root else []))
    finally:
        checkout.chmod(0o700)
    assert done.returncode != 0
    assert (
        "cannot be written" in done.stderr
        and "make VENV=" in done.stderr
        and "has no venv" not in done.stderr
    )


# -- pip's settings --------------------------------------------------------------------------------


def load_install() -> Any:
    loader = SourceFileLoader("berth_install", str(ROOT / ".ci" / "install"))
    spec = importlib.util.spec_from_loader("berth_install", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def make_wheel() -> bytes:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as wheel:
        wheel.writestr("berth_probe.py", "")
        wheel.writestr(
            "berth_probe-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: berth-probe\nVersion: 1.0\n",
        )
        wheel.writestr(
            "berth_probe-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr("berth_probe-1.0.dist-info/RECORD", "")
    return into.getvalue()


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A package index with one package; its address."""
    folder = tmp_path / "index" / "simple" / "berth-probe"
    folder.mkdir(parents=True)
    (folder / "berth_probe-1.0-py3-none-any.whl").write_bytes(make_wheel())
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "index"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()


@pytest.mark.parametrize("how", ["environment", "file"])
def test_pip_index_is_used_for_all_packages(
    index: str, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {index}\n")
    monkeypatch.setenv(
        *(
            ("PIP_INDEX_URL", index)
            if how == "environment"
            else ("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
        )
    )
    (tmp_path / "wanted.txt").write_text(
        f"berth-probe==1.0 --hash=sha256:{hashlib.sha256(make_wheel()).hexdigest()}\n"
    )
    install = load_install().Install(sys.prefix)
    command = [
        str(install.uv),
        "pip",
        "install",
        "--no-cache",
        "--target",
        str(tmp_path / "into"),
        "--require-hashes",
    ]
    done = subprocess.run(
        [*command, "-r", str(tmp_path / "wanted.txt")],
        env=install.read_pip(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "into" / "berth_probe.py").exists()


def test_each_pip_setting_has_a_uv_setting() -> None:
    install = load_install()
    pip = install.parse_pip(
        ":env:.cert='/env.pem'\nglobal.cert='/global.pem'\n"
        "global.index-url='https://mirror.example/simple'\n"
        "install.extra-index-url='\\nhttps://a.example\\nhttps://b.example'\n"
        "global.trusted-host='a.example'\nlist.format='columns'\n"
    )
    assert install.translate(pip, {}) == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://a.example https://b.example",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INSECURE_HOST": "a.example",
        "SSL_CERT_FILE": "/env.pem",
    }
    assert install.translate(
        pip, {"UV_INDEX_URL": "x", "UV_INDEX": "x", "SSL_CERT_FILE": "/own.pem"}
    ) == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INSECURE_HOST": "a.example",
    }


# -- the interpreter -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paces", "taken"),
    [
        ({"named": 1.0}, "named"),
        ({"named": 1.0, "slower": 1.4}, "named"),
        ({"named": 1.0, "hardly faster": 0.95}, "named"),
        ({"named": 1.4, "faster": 1.0}, "faster"),
        ({"named": 1.4, "faster": 1.1, "fastest": 1.0}, "fastest"),
        ({"named": 1.4, "without venv": None}, "named"),
        ({"without venv": None, "with venv": 1.0}, "with venv"),
        ({"without venv": None, "another": None}, "without venv"),
    ],
)
def test_environment_takes_another_interpreter_only_if_it_is_clearly_faster(
    paces: dict[str, float | None], taken: str
) -> None:
    assert load_install().choose(paces) == taken


def test_only_an_interpreter_that_can_make_environments_has_a_pace(tmp_path: Path) -> None:
    install = load_install()
    assert install.measure(sys.executable) > 0
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert install.measure(str(broken)) is None
    assert install.measure(str(tmp_path / "missing")) is None


def test_each_interpreter_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tmp_path / "real" / "python3.11"
    real.parent.mkdir()
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    for folder in ("linked", "first"):
        (tmp_path / folder).mkdir()
    (tmp_path / "linked" / "python3.11").symlink_to(real)
    (tmp_path / "first" / "python3.11").symlink_to(sys.executable)
    folders = [str(tmp_path / name) for name in ("first", "linked", "real")]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    found = load_install().list_interpreters("python3.11")
    assert [path for path in found if path.startswith(str(tmp_path))] == [
        str(tmp_path / "linked" / "python3.11")
    ]


def test_a_named_interpreter_is_taken_even_if_another_is_faster(checkout: Path) -> None:
    assert " --fastest " not in make(checkout, "-n", "setup").stdout
    shown = subprocess.run(
        ["make", "-n", "setup"], cwd=checkout, env=environment(), capture_output=True, text=True
    )
    assert " --fastest " in shown.stdout
    named = {"PYTHON": sys.executable}
    shown = subprocess.run(
        ["make", "-n", "setup"],
        cwd=checkout,
        env=environment(**named),
        capture_output=True,
        text=True,
    )
    assert " --fastest " not in shown.stdout
