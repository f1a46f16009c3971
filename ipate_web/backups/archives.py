"""Archives: tar files encrypted with age (https://age-encryption.org/v1), written and read as streams.

Making backups requires only public keys (recipients); reading them requires one of the private keys (identities). age
authenticates every 64 KiB, so readers never get altered bytes, and truncated files are detected.
"""

import hashlib
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import IO, BinaryIO

import pyrage

from ipate_web.backups import BackupError

BLOCK = 1 << 20

#: First bytes of encrypted files.
_MAGIC = b"age-encryption.org/"


class Digesting:
    """Writer to ``target`` that computes the SHA-256 of the bytes written."""

    def __init__(self, target: BinaryIO) -> None:
        self._target, self._digest = target, hashlib.sha256()

    def write(self, block: bytes) -> int:
        self._digest.update(block)
        return self._target.write(block)

    def flush(self) -> None:
        self._target.flush()

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


@contextmanager
def _piped(work: Callable[[IO[bytes]], None], *, reads: bool) -> Iterator[IO[bytes]]:
    """Yield the other end of a pipe that ``work`` reads or writes in a thread; raise any error of the thread."""
    source, sink = os.pipe()
    failed: list[BaseException] = []
    here_fails = False

    def run() -> None:
        end = os.fdopen(source, "rb") if reads else os.fdopen(sink, "wb")
        try:
            work(end)
            end.flush()
        except BaseException as error:
            if not here_fails:
                failed.append(error)
        finally:
            # Only now, because the other thread fails, too, as soon as the pipe is closed.
            with suppress(BrokenPipeError):
                end.close()

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        with os.fdopen(sink, "wb") if reads else os.fdopen(source, "rb") as end:
            try:
                yield end
            except BaseException:
                here_fails = True
                raise
    finally:
        thread.join()
        if failed:
            raise failed[0]


@contextmanager
def archive_write(file: BinaryIO, recipients: Sequence[str]) -> Iterator[tarfile.TarFile]:
    """Yield a tar that is written to ``file``, encrypted to the ``recipients`` if there are any."""
    if not recipients:
        with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            yield tar
        return
    keys = [pyrage.x25519.Recipient.from_str(each) for each in recipients]
    with (
        _piped(lambda end: pyrage.encrypt_io(end, file, keys), reads=True) as end,
        tarfile.open(fileobj=end, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        yield tar


def identities_read(path: Path) -> list[pyrage.x25519.Identity]:
    """Return the private keys in a file created by ``age-keygen`` or ``ipate backup_key``. Raises BackupError."""
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
        identities = [pyrage.x25519.Identity.from_str(line) for line in lines if line and not line.startswith("#")]
    except (OSError, ValueError, pyrage.IdentityError):
        identities = []
    if not identities:
        raise BackupError(f"{path} is not a private key. A key file contains a line AGE-SECRET-KEY-1….")
    return identities


@contextmanager
def archive_open(path: Path, identities: Sequence[pyrage.x25519.Identity]) -> Iterator[Iterator[tuple[str, IO[bytes]]]]:
    """Yield names and contents of an archive's files in order. The whole archive is read and verified.

    Raises:
        BackupError: the archive cannot be decrypted or read.
    """
    if not path.is_file():
        raise BackupError(f"{path} is not a backup. Give a file that ipate backup wrote.")
    try:
        with path.open("rb") as file:
            encrypted = file.read(len(_MAGIC)) == _MAGIC
            file.seek(0)
            if not encrypted:
                yield _members(file)
                return
            if not identities:
                raise BackupError(f"{path} is encrypted. Give the file with the private key: --identity FILE.")

            def decrypt(end: IO[bytes]) -> None:
                try:
                    pyrage.decrypt_io(file, end, identities)
                except pyrage.DecryptError:
                    raise BackupError(f"{path} is encrypted with a different key than the one in --identity.") from None
                except OSError as error:
                    raise BackupError(f"{path} is damaged ({error}). Use another backup.") from error

            with _piped(decrypt, reads=False) as end:
                yield _members(end)
                while end.read(BLOCK):
                    pass
    except tarfile.TarError as error:
        raise BackupError(f"{path} is not a backup or is damaged ({error}). Use another backup.") from error


def _members(file: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(fileobj=file, mode="r|") as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is None:
                raise tarfile.TarError(f"{member.name} is not a file")
            yield member.name, content


def blocks_of(content: IO[bytes]) -> Iterator[bytes]:
    while block := content.read(BLOCK):
        yield block


def digest_of(content: IO[bytes]) -> str:
    """Return the SHA-256 of the remaining content."""
    digest = hashlib.sha256()
    for block in blocks_of(content):
        digest.update(block)
    return digest.hexdigest()
