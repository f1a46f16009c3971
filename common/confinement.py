"""Confined processes for untrusted files: limited memory and time, and no network, other programs or other files.

A seccomp filter refuses network access and programs, and Landlock refuses files; neither needs privileges. Some
protections are unavailable on systems other than Linux, on machines other than x86_64 and aarch64, and with kernels
older than 5.13 or without Landlock; `protections` reports which of them work. Files that must be opened by path are
copied to scratch folders. A sweep deletes folders left by killed processes.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import platform
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import ceil
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 1, 22, 38, 2
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1  # EPERM
_X32 = 0x40000000
#: For each machine, its name in the kernel and its system call numbers of socket, connect, execve, execveat, ptrace,
#: kill, process_vm_readv, process_vm_writev and io_uring_setup (linux/audit.h, asm/unistd.h).
_CALLS = {
    "x86_64": (0xC000003E, (41, 42, 59, 322, 101, 62, 310, 311, 425)),
    "aarch64": (0xC00000B7, (198, 203, 221, 281, 117, 129, 270, 271, 425)),
}
#: Numbers of landlock_create_ruleset, landlock_add_rule and landlock_restrict_self, the same on every machine.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _BENEATH = 1, 1
#: Rights to files (linux/landlock.h): to read files and list folders; all rights of version 1; to move files between
#: folders (from version 2 on); to truncate files (from version 3 on).
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_READ, _ALL, _MOVE, _CUT = _EXECUTE | _READ_FILE | _READ_FOLDER, (1 << 13) - 1, 1 << 13, 1 << 14
_ROOT = Path(__file__).parents[1]
#: Folders of programs and libraries, and files with facts about the machine that programs read.
_PROGRAMS = ("/usr", "/lib", "/lib64", "/bin", "/proc/self", "/proc/cpuinfo", "/proc/meminfo")
_ENVIRONMENT = {
    "PATH": os.defpath,
    "LC_ALL": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class ConfinedProcess:
    """Context manager that runs a module of this program in a separate process until the block ends.

    The process gets neither settings nor secrets. The module must call `confine` and write its answers to `answers`.

    Args:
        arguments: Arguments of its command line.

    Attributes:
        stdin: Stream for requests.
        stdout: Stream of answers.
        late: Whether the process was ended because it took too long.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # this program, no shell
            [sys.executable, "-m", module, *arguments],
            cwd=_ROOT,
            env=_ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout, "both are pipes"
        self.stdin: IO[bytes] = self._process.stdin
        self.stdout: IO[bytes] = self._process.stdout
        self.late = False

    def __enter__(self) -> ConfinedProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self.stdout.close()
        with suppress(BrokenPipeError):  # closing flushes the rest of the input
            self.stdin.close()
        self._process.wait()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """End the process if the block takes longer than ``seconds``."""
        timer = Timer(seconds, self._stop)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def ended(self) -> int:
        """Wait for the process to end; return its exit status, or the negative number of the signal that ended it."""
        return self._process.wait()

    def _stop(self) -> None:
        self.late = True
        self._process.kill()


def answers() -> IO[bytes]:
    """Return this process's standard output, reserved for answers. All other output goes to standard error."""
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return stream


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def confine(
    *, memory: int, seconds: int | None = None, reads: Sequence[Path] = (), writes: Sequence[Path] = ()
) -> None:
    """Confine this process permanently.

    Memory and time used so far are not counted. On Linux, the process ends when its parent does. The process can no
    longer open connections, start programs, or open files other than program files, ``reads`` and ``writes``; see
    `protections`.

    Args:
        memory: Bytes that the process may allocate in addition to its current memory; beyond that, MemoryError is
            raised.
        seconds: Limit of processor time, if any. At the limit, the process is killed.
        reads: Files and folders that it may read.
        writes: Folders that it may also write to.
    """
    _limit(resource.RLIMIT_AS, _address_space() + memory)
    if seconds is not None:
        _limit(resource.RLIMIT_CPU, ceil(time.process_time()) + seconds)
    _limit(resource.RLIMIT_CORE, 0)  # a core dump would contain records
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        _end_with_parent(libc)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _refuse_files(libc, reads, writes)
        _refuse_calls(libc)


def in_a_copy(work: Callable[[], bytes], *, seconds: float) -> bytes | None:
    """Call a function in a fork of this process, so that the call has no effect on this process.

    Only for confined processes with one thread; the fork inherits their limits.

    Args:
        seconds: Limit of processor time; the limit of elapsed time is four times as long.

    Returns:
        The function's result; None if it raised, crashed or took too long.
    """
    ours, theirs = os.pipe()
    copy = os.fork()
    if not copy:
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds)  # SIGPROF and SIGALRM end the copy
            signal.setitimer(signal.ITIMER_REAL, 4 * seconds)
            if sys.platform == "linux":
                _end_with_parent(ctypes.CDLL(None))
            with os.fdopen(theirs, "wb") as stream:
                stream.write(work())
            os._exit(0)
        finally:  # exceptions are not reported
            os._exit(1)
    os.close(theirs)
    with os.fdopen(ours, "rb") as stream:
        content = stream.read()
    return content if os.waitpid(copy, 0)[1] == 0 else None


def protections() -> dict[str, bool]:
    """Return whether each protection works on this machine.

    They cut a confined process off from the ``network``, and from other programs' ``files``.
    """
    with ConfinedProcess("common.confinement") as process:
        return json.loads(process.stdout.read() or "{}")


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bound, bound))


def _address_space() -> int:
    """Return the size in bytes of this process's address space; 0 if unknown."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _end_with_parent(libc: ctypes.CDLL) -> None:
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _refuse_files(libc: ctypes.CDLL, reads: Sequence[Path], writes: Sequence[Path]) -> None:
    """Refuse all files except program files and the given ones, with Landlock if the kernel has it."""
    version = libc.syscall(_CREATE_RULESET, None, 0, _VERSION)
    if version < 1:
        return
    handled = _ALL | (_MOVE if version > 1 else 0) | (_CUT if version > 2 else 0)
    attributes = ctypes.c_uint64(handled)
    rules = libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    packages = [path.parent for path in _ROOT.glob("*/__init__.py")]
    programs = map(Path, (*_PROGRAMS, sys.prefix, sys.base_prefix))
    for path in {each.resolve() for each in (*programs, *packages, *reads)}:
        _allow(libc, rules, path, _READ)
    _allow(libc, rules, Path(os.devnull), _READ_FILE | _WRITE_FILE)
    for path in writes:
        _allow(libc, rules, path, handled)
    libc.syscall(_RESTRICT_SELF, rules, 0)
    os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: Path, access: int) -> None:
    """Allow access to files at or below a path. If the path does not exist, do nothing."""
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    rule = _Beneath(access if path.is_dir() else access & ~_READ_FOLDER, parent)
    libc.syscall(_ADD_RULE, rules, _BENEATH, ctypes.byref(rule), 0)
    os.close(parent)


def _refuse_calls(libc: ctypes.CDLL) -> None:
    """Refuse system calls that affect anything outside this process, with a seccomp filter."""
    if platform.machine() not in _CALLS:
        return
    machine, calls = _CALLS[platform.machine()]
    count = len(calls)
    steps = [  # instruction, steps skipped if true, steps skipped if false, operand
        (_LOAD, 0, 0, 4),
        (_EQUAL, 0, count + 3, machine),  # calls for another architecture are refused
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, count + 1, 0, _X32),
        *((_EQUAL, count - place, 0, call) for place, call in enumerate(calls)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    program = _Program(len(steps), b"".join(struct.pack("=HBBI", *step) for step in steps))
    libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)


def _tried() -> dict[str, bool]:
    """Return whether each forbidden action of a confined process is refused."""
    confine(memory=1 << 30)
    refused: dict[str, bool] = {}
    attempts: dict[str, Callable[[], object]] = {"network": socket.socket, "files": lambda: os.listdir("/")}
    for name, attempt in attempts.items():
        try:
            attempt()
        except PermissionError:
            refused[name] = True
        else:
            refused[name] = False
    return refused


if __name__ == "__main__":
    stream = answers()
    stream.write(json.dumps(_tried()).encode())
    stream.flush()


_PREFIX = "ipate-scratch-"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Provide a folder for the duration of the block. No other user can read it."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        yield Path(folder)


def scratch_sweep(seconds: float) -> None:
    """Delete this machine's scratch folders that are older than ``seconds``, left behind by killed processes."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            is_old = folder.stat().st_mtime < time.time() - seconds
        except FileNotFoundError:
            continue
        if is_old:
            shutil.rmtree(folder, ignore_errors=True)


_TYPES = ("uint8", "float32")
_LONGEST_LINE = 1 << 16


def frame_write(stream: IO[bytes], array: NDArray[Any] | None = None, **header: Any) -> None:
    """Write a message: a header and, optionally, an array."""
    if array is not None:
        header |= {"shape": list(array.shape), "type": array.dtype.name}
    stream.write(json.dumps(header).encode() + b"\n")
    if array is not None:
        stream.write(np.ascontiguousarray(array).tobytes())
    stream.flush()


def frame_read(stream: IO[bytes], *, most: int = 0) -> tuple[dict[str, Any], NDArray[Any] | None]:
    """Read a message that `frame_write` wrote; return its header and array.

    Args:
        most: Maximum size of the message's array in bytes; an untrusted file may have taken over the process that sends
            it.

    Raises:
        EOFError: there is no message, or only part of one.
        ValueError: the message was not written by `frame_write`, or is too large.
    """
    line = stream.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise EOFError
    header = json.loads(line)
    if "shape" not in header:
        return header, None
    shape, kind = tuple(header["shape"]), np.dtype(_TYPES[_TYPES.index(header["type"])])
    size = math.prod(shape) * kind.itemsize
    if not 0 <= size <= most:
        raise ValueError(f"An array of {size} bytes was not requested.")
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return header, np.frombuffer(content, kind).reshape(shape)
