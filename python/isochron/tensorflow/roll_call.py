"""Who is still there? TensorFlow's collectives do not say which worker they waited for in vain, so each worker answers
that question on a port of its own, from a thread that costs nothing until somebody asks."""

from __future__ import annotations

import concurrent.futures
import contextlib
import socket
import threading

_PATIENCE = 2.0  # seconds for an asker to say its news


class RollCall:
    """Answers with the step this process is at, and keeps what others say is wrong."""

    def __init__(self) -> None:
        self._server = socket.create_server(("", 0))
        self._heard = ""
        self.at = 0
        threading.Thread(target=self._answer, daemon=True, name="isochron-roll-call").start()

    @property
    def port(self) -> int:
        return self._server.getsockname()[1]

    def note(self, step: int) -> None:
        self.at = step

    def heard(self) -> str:
        """The first news from others; empty: none."""
        return self._heard

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread up
        self._server.close()

    def _answer(self) -> None:
        while True:
            try:
                asker, _ = self._server.accept()
            except OSError:
                return
            with asker, contextlib.suppress(OSError):
                asker.settimeout(_PATIENCE)
                asker.sendall(f"{self.at}\n".encode())
                news = asker.makefile().readline().strip()
                self._heard = self._heard or news
                asker.sendall(b"heard\n")


def call(addresses: dict[int, str], timeout: float) -> dict[int, int | None]:
    """The step every worker is at; None for those that do not answer within `timeout` seconds."""
    return tell(addresses, "", timeout)


def tell(addresses: dict[int, str], news: str, timeout: float) -> dict[int, int | None]:
    """The same, and tells them `news`."""
    if not addresses:
        return {}
    line = " ".join(news.split())
    with concurrent.futures.ThreadPoolExecutor(len(addresses)) as pool:
        answers = pool.map(lambda address: _ask(address, line, timeout), addresses.values())
        return dict(zip(addresses, answers, strict=True))


def _ask(address: str, news: str, timeout: float) -> int | None:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=timeout) as peer:
            answers = peer.makefile()
            step = int(answers.readline())
            peer.sendall(f"{news}\n".encode())
            answers.readline()  # who asks may end after this: the news has arrived
            return step
    except (OSError, ValueError):
        return None
