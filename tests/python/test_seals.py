"""What two workers send each other over sockets, when somebody between them has it in hand."""

import contextlib
import socket
import threading
import time

import pytest

from isochron import door
from isochron._core import TcpLink

KEY = b"the key of this job"
GOODBYE = 12 + 16  # a head and its seal


class Between:
    """Carries a guest's bytes to a door, and what comes after its hello only as `change` has it."""

    def __init__(self, port, change):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._target, self._change = port, change
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def _carry(self):
        guest, _ = self._listener.accept()
        with guest, socket.create_connection(("127.0.0.1", self._target)) as there, contextlib.suppress(OSError):
            threading.Thread(target=self._copy, args=(there, guest), daemon=True).start()
            nonce = guest.recv(32, socket.MSG_WAITALL)
            length = guest.recv(4, socket.MSG_WAITALL)
            hello = guest.recv(int.from_bytes(length, "big") + 32, socket.MSG_WAITALL)
            there.sendall(nonce + length + hello)
            there.sendall(self._change(guest.recv(GOODBYE, socket.MSG_WAITALL)))
            self._copy(guest, there)

    @staticmethod
    def _copy(source, sink):
        with contextlib.suppress(OSError):
            while part := source.recv(4096):
                sink.sendall(part)

    def close(self):
        self._thread.join(10)
        self._listener.close()


@contextlib.contextmanager
def links(change):
    """Two workers, of whom the second has knocked at the first one's door through somebody else."""
    first, second = (TcpLink(rank, ["here", "there"], 20.0) for rank in range(2))
    inside = threading.Event()

    def admit(guest):
        guest.answer({})
        first.connect(1, guest.link.detach(), *guest.keys)
        inside.set()

    entrance = door.Door(door.listen("127.0.0.1"), KEY, admit)
    between = Between(entrance.port, change)
    visit = door.knock("127.0.0.1", between.port, KEY, {"rank": 1}, 10.0)
    second.connect(0, visit.link.detach(), *visit.keys)
    assert inside.wait(10)
    yield first, second
    for link in (second, first):
        link.leave(orderly=False)
    entrance.close()
    between.close()


def what_the_first_hears(change):
    """How its link fails when the other one says goodbye, whose connection ends after that."""
    with links(change) as (first, second):
        second.leave(orderly=True)
        deadline = time.monotonic() + (0.5 if change is unchanged else 10)
        while (failure := first.failure) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return failure


def unchanged(said):
    return said


def test_what_nobody_has_changed_is_taken():
    assert what_the_first_hears(unchanged) is None


@pytest.mark.parametrize("at", [0, 4, 11, 12, GOODBYE - 1])
def test_a_byte_that_was_changed_on_its_way_is_an_error_that_names_the_worker(at):
    failure = what_the_first_hears(lambda said: said[:at] + bytes([said[at] ^ 16]) + said[at + 1 :])
    assert failure.kind == "PeerError" and failure.ranks == [1]
    assert failure.text.startswith("what came from rank 1 on there has not the seal of this job")


def test_a_frame_of_another_connection_of_the_same_job_is_refused():
    recorded = []

    def record(said):
        recorded.append(said)
        return said

    assert what_the_first_hears(unchanged) is None
    with links(record) as (_, second):
        second.leave(orderly=True)
        deadline = time.monotonic() + 10
        while not recorded and time.monotonic() < deadline:
            time.sleep(0.01)
    failure = what_the_first_hears(lambda said: recorded[0])
    assert failure is not None and "has not the seal of this job" in failure.text


def test_both_sides_of_a_visit_have_keys_of_this_visit_alone():
    seen = []

    def admit(guest):
        guest.answer({})
        seen.append(guest.keys)
        guest.close()

    entrance = door.Door(door.listen("127.0.0.1"), KEY, admit)
    visits = [door.knock("127.0.0.1", entrance.port, KEY, {}, 10.0) for _ in range(2)]
    for visit in visits:
        visit.link.close()
    deadline = time.monotonic() + 10
    while len(seen) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    entrance.close()
    assert {(keys.incoming, keys.outgoing) for keys in seen} == {tuple(visit.keys) for visit in visits}
    assert len({key for visit in visits for key in visit.keys}) == 4  # one for each direction of each connection
