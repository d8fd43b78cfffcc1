"""The first messages on a connection between workers. Who does not know the job's key says nothing that counts.

  a) The door sends 32 random bytes.
  b) The guest answers with 32 of its own, its hello and the HMAC-SHA256 of all of that under the key.
  c) The door compares in constant time before it looks at the hello, and answers with an HMAC of its own, so that
     the guest, too, knows who it is.
  d) Whatever follows on that connection is sealed with two keys that come from the job's and from both sides' random
     bytes, one for each direction (isochron/server/frame_seal.h).

The key does not travel, and a handshake that somebody has recorded opens no door. What a stranger can make us keep is
bounded in bytes and in time. Every guest has a thread, so none waits for another; where there are too many at once, the
one that has been silent for the longest time is sent away. Nothing that comes in ends the door.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

log = logging.getLogger("isochron")

MOST_HELLO = 64 << 10  # bytes
MOST_ANSWER = 16 << 20  # bytes
HELLO_SECONDS = 10.0  # for the whole hello
MOST_GUESTS = 64  # that have not said it yet
_RETRY_SECONDS = 0.05
_NONCE = _SEAL = 32  # bytes
_LENGTH = struct.Struct("!I")


def listen(address: str, port: int = 0) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=1024)


def read_message(text: bytes | bytearray) -> dict[str, Any]:
    """Raises ValueError, whatever the bytes are."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON ({error})") from error
    if not isinstance(message, dict):
        raise ValueError("no object")
    return message


class FrameKeys(NamedTuple):
    """Of one connection alone; the other side has them the other way round."""

    outgoing: bytes
    incoming: bytes


class Visit(NamedTuple):
    """A door that has let us in."""

    link: socket.socket
    answer: dict[str, Any]
    keys: FrameKeys


class Guest:
    """Somebody who knows the key. Not thread-safe."""

    def __init__(self, link: socket.socket, hello: dict[str, Any], key: bytes, nonces: bytes) -> None:
        self.hello = hello
        self.link = link
        self._key, self._nonces = key, nonces

    @property
    def keys(self) -> FrameKeys:
        return _frame_keys(self._key, self._nonces, b"door", b"guest")

    def answer(self, message: dict[str, Any], seconds: float = HELLO_SECONDS) -> None:
        """Once. Raises OSError."""
        _send(self.link, self._key, b"door", self._nonces, message, time.monotonic() + seconds)

    def close(self) -> None:
        self.link.close()


class Door:
    """Calls `admit` with every guest, each in a thread of its own; what it raises ends that connection alone."""

    def __init__(self, listener: socket.socket, key: bytes, admit: Callable[[Guest], None]) -> None:
        self._listener = listener
        self._key = key
        self._admit = admit
        self._closed = False
        self._lock = threading.Lock()
        self._waiting: list[socket.socket] = []  # for a hello, the oldest first
        self._strangers = 0
        threading.Thread(target=self._accept, name="isochron-door", daemon=True).start()

    @property
    def port(self) -> int:
        return self._listener.getsockname()[1]

    def close(self) -> None:
        """Nobody comes in any more; who is in stays."""
        with self._lock:
            self._closed = True
            for link in self._waiting:
                _wake(link)
        _wake(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                link, _ = self._listener.accept()
            except OSError:  # it is closed, or this process has too many files open for now
                time.sleep(_RETRY_SECONDS)
                continue
            with self._lock:
                if len(self._waiting) >= MOST_GUESTS:
                    _wake(self._waiting.pop(0))
                self._waiting.append(link)
            try:
                threading.Thread(target=self._greet, args=(link,), name="isochron-guest", daemon=True).start()
            except RuntimeError:  # too many threads for now
                self._let_go(link)
                link.close()

    def _let_go(self, link: socket.socket) -> None:
        with self._lock:
            if link in self._waiting:
                self._waiting.remove(link)

    def _greet(self, link: socket.socket) -> None:
        try:
            try:
                guest = self._hear(link)
            finally:
                self._let_go(link)
            self._admit(guest)
        except Exception as error:
            link.close()
            if not self._closed:
                self._complain(error)

    def _hear(self, link: socket.socket) -> Guest:
        deadline = time.monotonic() + HELLO_SECONDS
        mine = secrets.token_bytes(_NONCE)
        _write(link, mine, deadline)
        nonces = mine + _read(link, _NONCE, deadline)
        return Guest(link, _receive(link, self._key, b"guest", nonces, MOST_HELLO, deadline), self._key, nonces)

    def _complain(self, error: Exception) -> None:
        """True of the first one, the second, the fourth: whoever knocks often fills no log."""
        with self._lock:
            self._strangers += 1
            count = self._strangers
        if count & (count - 1) == 0:
            log.warning("somebody connected who is not of this job (%s); so far %d", error, count)


def knock(address: str, port: int, key: bytes, hello: dict[str, Any], seconds: float) -> Visit:
    """Raises OSError. Tries again where the door sent us away before our hello had arrived, which it does when there is
    a crowd."""
    deadline = time.monotonic() + seconds
    while True:
        link = socket.create_connection((address, port), _left(deadline))
        try:
            return introduce(link, key, hello, deadline)
        except ConnectionError as error:
            if time.monotonic() + _RETRY_SECONDS > deadline:
                raise ConnectionError(f"{error}; is the job's key the same there?") from error
        time.sleep(_RETRY_SECONDS)


def introduce(link: socket.socket, key: bytes, hello: dict[str, Any], deadline: float) -> Visit:
    """The guest's part; closes a connection on which it fails."""
    try:
        theirs = _read(link, _NONCE, deadline)
        mine = secrets.token_bytes(_NONCE)
        _write(link, mine, deadline)
        nonces = theirs + mine
        _send(link, key, b"guest", nonces, hello, deadline)
        answer = _receive(link, key, b"door", nonces, MOST_ANSWER, deadline)
        return Visit(link, answer, _frame_keys(key, nonces, b"guest", b"door"))
    except ValueError as error:
        link.close()
        raise OSError(f"what answers there is not of this job ({error})") from error
    except BaseException:
        link.close()
        raise


def _frame_keys(key: bytes, nonces: bytes, mine: bytes, theirs: bytes) -> FrameKeys:
    return FrameKeys(*(_seal(key, b"frames of the " + one, nonces, b"") for one in (mine, theirs)))


def _seal(key: bytes, who: bytes, nonces: bytes, text: bytes) -> bytes:
    return hmac.digest(key, who + b"\0" + nonces + text, "sha256")


def _send(
    link: socket.socket, key: bytes, who: bytes, nonces: bytes, message: dict[str, Any], deadline: float
) -> None:
    text = json.dumps(message, separators=(",", ":")).encode()
    _write(link, _LENGTH.pack(len(text)) + text + _seal(key, who, nonces, text), deadline)


def _receive(
    link: socket.socket, key: bytes, who: bytes, nonces: bytes, most: int, deadline: float
) -> dict[str, Any]:
    (length,) = _LENGTH.unpack(_read(link, _LENGTH.size, deadline))
    if length > most:
        raise ValueError(f"{length} bytes; permitted: {most}")
    text = _read(link, length, deadline)
    if not hmac.compare_digest(_read(link, _SEAL, deadline), _seal(key, who, nonces, text)):
        raise ValueError("another key")
    return read_message(text)


def _read(link: socket.socket, size: int, deadline: float) -> bytes:
    """However slowly it comes, not beyond the deadline."""
    got = bytearray()
    while len(got) < size:
        link.settimeout(_left(deadline))
        part = link.recv(min(size - len(got), MOST_HELLO))
        if not part:
            raise ConnectionResetError("it closed the connection")
        got += part
    return bytes(got)


def _write(link: socket.socket, data: bytes, deadline: float) -> None:
    link.settimeout(_left(deadline))
    link.sendall(data)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("it took too long")
    return left


def _wake(link: socket.socket) -> None:
    """Ends what a thread waits for."""
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
