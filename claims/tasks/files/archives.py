"""Sources as archives: untrusted archives are read in a limited child process and packed again as a
plain tar.gz.

The packed archive contains only files, folders and links that stay inside, and its unpacked size is
limited.
"""

import gzip
import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import IO

from claims.tasks.source_paths import why_not_path
from project.kernel.errors import Refused
from project.kernel.security.sandbox import ChildFailed, SandboxLimits, run_limited
from slots.agent.workdir.archive import BoundedGzip
from slots.agent.workdir.tar_headers import CheckedTarInfo

MB = 10**6
MOST_BYTES = 200 * MB  # unpacked
FREE_BYTES = 20 * MB  # a small archive may unpack to this size at any ratio
HIGHEST_RATIO = 200
MOST_FILES = 20_000
MOST_PACKED = 32 * MB
GZIP, ZIP = b"\x1f\x8b", b"PK"
ZIP_ENTRY = b"PK\x01\x02"  # begins each entry in the list of a zip
# Limits of the child process that reads an uploaded archive.
LIMITS = SandboxLimits(memory=256 * MB, cpu=30, wall=60.0, output=MOST_PACKED + 1000)
FILES = struct.Struct(">I")  # before the archive, in the child's answer


@dataclass(frozen=True, slots=True)
class Archive:
    data: bytes
    files: int


def refused(
    text: str, way_out: str = "Pack only the files, with paths inside the archive."
) -> Refused:
    return Refused(text, code="source_refused", way_out=way_out)


def pack_files(files: Iterable[tuple[str, str]]) -> Archive:
    """Packs texts by path. Equal texts give equal bytes. A text that begins with #! is
    executable.
    """
    into = Packed()
    for path, text in sorted(files):
        data = text.encode("utf-8", "replace")
        into.add_file(path, io.BytesIO(data), len(data), is_program=text.startswith("#!"))
    return into.close()


def repack_limited(data: bytes) -> Archive:
    """Packs an uploaded tar.gz or zip again. A limited child process reads it."""
    try:
        answer = run_limited(f"{__name__}:answer_repacked", data, LIMITS)
    except ChildFailed as error:
        raise refused(
            f"The archive cannot be read. {error}",
            "Pack it again, as a plain tar.gz or zip with fewer and smaller files.",
        ) from error
    return Archive(answer[FILES.size :], FILES.unpack_from(answer)[0])


def answer_repacked(data: bytes) -> bytes:
    """Runs in the child process."""
    archive = repack(data)
    return FILES.pack(archive.files) + archive.data


def repack(data: bytes) -> Archive:
    """Packs an uploaded archive again, in this process."""
    most = min(MOST_BYTES, max(FREE_BYTES, len(data) * HIGHEST_RATIO))
    try:
        if data.startswith(GZIP):
            return _repack_tar(data, most)
        if data.startswith(ZIP):
            return _repack_zip(data, most)
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        zipfile.LargeZipFile,
        EOFError,
        zlib.error,
        gzip.BadGzipFile,
    ) as error:
        raise refused(f"The archive is broken: {str(error)[:200]}", "Pack it again.") from error
    except (ValueError, OverflowError, NotImplementedError, RuntimeError, OSError) as error:
        raise refused(
            f"The archive cannot be read: {str(error)[:200]}",
            "Pack it again, as a plain tar.gz or zip.",
        ) from error
    raise refused("This is neither a tar.gz nor a zip.", "Send a tar.gz or a zip.")


def _repack_tar(data: bytes, most: int) -> Archive:
    into = Packed()
    with (
        gzip.open(io.BytesIO(data)) as packed,
        tarfile.open(
            fileobj=BoundedGzip(packed, most, too_large(most)), mode="r|", tarinfo=CheckedTarInfo
        ) as tar,  # type: ignore[call-overload]
    ):
        for member in tar:
            if (path := clean(member.name)) is None:
                continue
            if member.isdir():
                into.add_folder(path)
            elif member.issym():
                into.add_link(path, member.linkname)
            elif member.isreg() and not member.issparse():
                content = tar.extractfile(member)
                assert content is not None
                into.add_file(path, content, member.size, is_program=bool(member.mode & 0o100))
            else:
                raise refused(
                    f"{member.name[:200]!r} is neither a file, a folder nor a symbolic link."
                )
    return into.close()


def _repack_zip(data: bytes, most: int) -> Archive:
    into = Packed()
    left = most
    # Checked before reading: each entry takes ten times its size in memory.
    if data.count(ZIP_ENTRY) > 2 * MOST_FILES:
        raise too_many()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            if (path := clean(info.filename)) is None:
                continue
            mode = info.external_attr >> 16
            if info.flag_bits & 1:
                raise refused("The archive is encrypted.", "Pack it without a password.")
            if stat.S_ISLNK(mode) or (
                stat.S_IFMT(mode) and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
            ):
                raise refused(
                    f"{path[:200]!r} is neither a file nor a folder.",
                    "Pack only files, or use a tar.gz for links.",
                )
            if info.is_dir():
                into.add_folder(path)
                continue
            left -= info.file_size
            if left < 0:
                raise too_large(most)
            with archive.open(info) as content:
                into.add_file(path, content, info.file_size, is_program=bool(mode & 0o100))
    return into.close()


@dataclass
class Packed:
    """A tar.gz under construction. Of modes it keeps only the executable bit, and no owners and
    times.
    """

    count: int = 0
    _names: dict[str, str] = field(default_factory=dict)  # kind of each path
    _buffer: io.BytesIO = field(default_factory=io.BytesIO)

    def __post_init__(self) -> None:
        self._gzip = gzip.GzipFile(
            fileobj=self._buffer, mode="wb", mtime=0, compresslevel=6, filename=""
        )
        # `close` closes the archive.
        self._tar = tarfile.open(fileobj=self._gzip, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115

    def add_folder(self, path: str) -> None:
        if self._names.get(path) == "folder":
            return
        self._enter(path, "folder")
        self._add(path, tarfile.DIRTYPE, 0o755)

    def add_file(self, path: str, content: IO[bytes], size: int, *, is_program: bool) -> None:
        self._enter(path, "file")
        self._add(path, tarfile.REGTYPE, 0o755 if is_program else 0o644, size=size, content=content)

    def add_link(self, path: str, target: str) -> None:
        """Accepts a target that goes up first and then down, and that stays inside the archive."""
        steps = [step for step in target.split("/") if step not in ("", ".")]
        up = 0
        while up < len(steps) and steps[up] == "..":
            up += 1
        if (
            target.startswith("/")
            or ".." in steps[up:]
            or up > path.count("/")
            or not steps
            or not target.isprintable()
        ):
            raise refused(f"The link {path[:200]!r} leads out of the archive.")
        self._enter(path, "link")
        self._add(path, tarfile.SYMTYPE, 0o777, link=target)

    def close(self) -> Archive:
        files = sum(kind in ("file", "link") for kind in self._names.values())
        if not files:
            raise refused("The archive contains no file.")
        self._tar.close()
        self._gzip.close()
        self._check_size()
        return Archive(self._buffer.getvalue(), files)

    def _enter(self, path: str, kind: str) -> None:
        if wrong := why_not_path(path):
            raise refused(f"{path[:200]!r}: {wrong}")
        self.count += 1
        if self.count > MOST_FILES:
            raise too_many()
        if self._names.get(path, "implied") != "implied" or (
            path in self._names and kind != "folder"
        ):
            raise refused(f"The archive contains {path[:200]!r} twice.")
        parts = path.split("/")
        for i in range(1, len(parts)):
            above = "/".join(parts[:i])
            if self._names.setdefault(above, "implied") in ("file", "link"):
                raise refused(f"{path[:200]!r} lies behind a file or a link.")
        self._names[path] = kind

    def _add(
        self,
        path: str,
        kind: bytes,
        mode: int,
        *,
        size: int = 0,
        link: str = "",
        content: IO[bytes] | None = None,
    ) -> None:
        info = tarfile.TarInfo(path)
        info.type, info.mode, info.size, info.linkname = kind, mode, size, link
        self._tar.addfile(info, content)
        self._check_size()

    def _check_size(self) -> None:
        if self._buffer.tell() > MOST_PACKED:
            raise refused(
                f"The packed archive is larger than {MOST_PACKED // MB} MB.",
                "Leave out files that the task does not need.",
            )


def clean(name: str) -> str | None:
    """The path in its plain form; None for the root folder. A path that leads out stays unchanged
    and is rejected later.
    """
    path = name[2:] if name.startswith("./") else name
    return path.rstrip("/") if path.rstrip("/") not in ("", ".") or path.startswith("/") else None


def too_large(most: int) -> Refused:
    return refused(
        f"The archive unpacks to more than {most // MB} MB.",
        "Leave out files that the task does not need.",
    )


def too_many() -> Refused:
    return refused(
        f"The archive contains more than {MOST_FILES} files.",
        "Leave out files that the task does not need.",
    )
