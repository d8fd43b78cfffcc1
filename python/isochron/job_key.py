"""The secret by which the workers of a job know each other.

Variables and files of mode 0600 carry it: other users can read neither, but they can read every command line.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from isochron.errors import Error

VARIABLE = "ISOCHRON_JOB_KEY"
LEAST = 16  # letters
MOST = 4096


def make() -> str:
    return secrets.token_hex(32)


def find(environ: Mapping[str, str] = os.environ) -> bytes | None:
    """What the launcher, or whoever started the job, has put into the environment."""
    text = environ.get(VARIABLE)
    return checked(text, VARIABLE) if text else None


def checked(text: str, name: str) -> bytes:
    """Raises ValueError, which does not tell the secret."""
    if not LEAST <= len(text) <= MOST:
        raise ValueError(f"{name} has {len(text)} letters; permitted: a secret of {LEAST} to {MOST}")
    return text.encode(errors="surrogateescape")


def mixed(secret: str, environ: Mapping[str, str] = os.environ) -> bytes:
    """A digest of a secret that the workers have just exchanged, over whatever connects them, and of the job's key if
    there is one: who has overheard the one still lacks the other."""
    return hmac.digest(find(environ) or b"without", secret.encode(), "sha256")


def read(path: str) -> str:
    """Reads the key of a file for its owner alone. Raises ValueError."""
    try:
        with open(path, errors="surrogateescape") as file:
            about = os.fstat(file.fileno())
            text = file.read(MOST + 2).strip()
    except OSError as error:
        raise ValueError(f"key-file is '{path}'; permitted: a file that can be read ({error.strerror})") from None
    if about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise ValueError(
            f"key-file is '{path}', of user {about.st_uid} and mode {stat.S_IMODE(about.st_mode):04o}; permitted: a "
            "file of your own that nobody else can read (chmod 600)"
        )
    checked(text, "key-file")
    return text


class HostKey:
    """A key for the workers of one user on one host, in a file that only that user can read. `name` is known to all of
    them."""

    def __init__(self, name: str) -> None:
        self._folder = Path(tempfile.gettempdir()) / f"isochron-{os.getuid()}"
        self._path = self._folder / f"{name}.key"

    def make(self) -> bytes:
        """By one of the workers."""
        with suppress(FileExistsError):
            self._folder.mkdir(mode=0o700)
        about = self._folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
            raise Error(f"{self._folder} is not a folder of this user alone; remove it, or set {VARIABLE}")
        text = make()
        with tempfile.NamedTemporaryFile("w", dir=self._folder, delete=False) as file:  # its mode is 0600
            file.write(text)
        os.replace(file.name, self._path)
        return text.encode()

    def find(self) -> bytes | None:
        """By the others; None: it is not there yet. Who reads that of an earlier job is not let in and reads again."""
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW)
            with open(descriptor, "rb") as file:
                if os.fstat(descriptor).st_uid == os.getuid():
                    return file.read(MOST) or None
        return None

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
