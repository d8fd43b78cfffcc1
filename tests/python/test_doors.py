"""Ports that workers open: what strangers say there, and that it neither ends nor delays anything."""

import contextlib
import dataclasses
import hmac
import importlib.util
import json
import pathlib
import socket
import struct
import sys
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import isochron
from isochron import door, job_key, launch
from isochron.board import Board, RemoteBoard
from isochron._core import TcpLink, lay_out
from isochron.place import Place
from isochron.served.session import Owner, Session
from isochron.served.sockets import Sockets
from chances import changed, random_json, scribbled
from test_served import Descent, options_of, replica_of

PACKAGE = pathlib.Path(isochron.__file__).parent
KEY = b"the key of these tests"
DEEP = b"[" * 4000
TIMEOUT = 8.0  # less than a stranger may take for its hello


class Pair:
    """Rank 0 has its door at `place`. Rank 1 is to come."""

    def __init__(self):
        said, barrier = [None, None], threading.Barrier(2)

        def make(rank):
            def gather(value):
                said[rank] = value
                barrier.wait(60)
                heard = [dict(one) if isinstance(one, dict) else one for one in said]
                barrier.wait(60)
                return heard

            return Sockets(rank, gather, None, TIMEOUT)

        with ThreadPoolExecutor(2) as pool:
            self.first, self.second = pool.map(make, range(2))
        self.place = self.first.places[0]

    def stranger(self):
        return socket.create_connection(self.place, timeout=30)

    def check_that_the_worker_gets_in(self):
        with ThreadPoolExecutor(2) as pool:
            links = list(pool.map(lambda sockets: sockets.connect(), (self.first, self.second)))
        assert [link.failure for link in links] == [None, None]

    def close(self):
        for sockets in (self.first, self.second):
            sockets._door.close()


@pytest.fixture
def pair_of_sockets():
    pair = Pair()
    yield pair
    pair.close()


def frame(text):
    return len(text).to_bytes(4, "big") + text


@pytest.mark.parametrize(
    "said",
    [
        frame(b'{"rank":1,"token":"\\ud800"}'),
        frame(DEEP),
        frame(b'{"rank":1,"token":"\xff"}'),
        b"\xff\xff\xff\xff" + b"x" * 100_000,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0",
        b"",
        bytes(32) + frame(b'{"rank":1}') + bytes(32),
        bytes(32) + frame(DEEP) + bytes(32),
    ],
    ids=["surrogate", "nesting", "no UTF-8", "too long", "HTTP", "cut short", "nothing", "wrong seal", "wrong, deep"],
)
def test_nothing_that_a_stranger_says_ends_the_listener(pair_of_sockets, said):
    # The other end may have closed already, which shutdown() says with an OSError of its own.
    with pair_of_sockets.stranger() as stranger, contextlib.suppress(OSError):
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        while stranger.recv(4096):  # until it is shown out
            pass
    pair_of_sockets.check_that_the_worker_gets_in()


@pytest.mark.parametrize("count", [3, 3 * door.MOST_GUESTS])
def test_strangers_who_say_nothing_keep_nobody_waiting(pair_of_sockets, count):
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(pair_of_sockets.stranger())
        pair_of_sockets.check_that_the_worker_gets_in()


def test_random_words_of_strangers_do_not_end_it(pair_of_sockets, chance):
    for _ in range(200):
        said = chance.randbytes(chance.choice([1, 31, 36, 64, 68, 100, 5000]))
        if chance.random() < 0.5:  # a length that may be, and less behind it
            said = said[:32].ljust(32) + chance.choice([0, 1, 65536, 2**31]).to_bytes(4, "big") + said
        with pair_of_sockets.stranger() as stranger, contextlib.suppress(ConnectionError):
            stranger.sendall(said)
    pair_of_sockets.check_that_the_worker_gets_in()


def test_a_worker_comes_in_once_and_under_its_own_rank(pair_of_sockets):
    for rank in (0, 2, -1, True, "1", None, [1]):
        with pytest.raises(OSError):
            door.knock(*pair_of_sockets.place, pair_of_sockets.first.key, {"rank": rank}, 0.2)
    pair_of_sockets.check_that_the_worker_gets_in()
    with pytest.raises(isochron.PeerLostError, match="cannot reach rank 0"):
        pair_of_sockets.second.connect()


@contextlib.contextmanager
def opened(admit, key=KEY):
    entrance = door.Door(door.listen("127.0.0.1"), key, admit)
    try:
        yield entrance
    finally:
        entrance.close()


def echo(guest):
    guest.answer({"heard": guest.hello})
    guest.close()


def visit(entrance, hello, seconds=5.0):
    link, answer, _ = door.knock("127.0.0.1", entrance.port, KEY, hello, seconds)
    link.close()
    return answer


def test_who_knows_the_key_is_heard_whatever_it_says():
    words = {"text": "\ud800 ü", "numbers": [1, 2.5, None], "long": "x" * 60_000}
    with opened(echo) as entrance:
        assert visit(entrance, words) == {"heard": words}
        with pytest.raises(OSError):
            visit(entrance, {"long": "x" * door.MOST_HELLO}, 0.2)
        assert visit(entrance, {}) == {"heard": {}}


@pytest.mark.parametrize("text", [DEEP, b"\xff\xfe", b"[]", b"1e999999", b"9" * 5000, b"", b'{"a":'])
def test_nonsense_from_one_who_knows_the_key_ends_its_connection_alone(text, monkeypatch):
    with opened(echo) as entrance:
        with monkeypatch.context() as patch:
            patch.setattr(door.json, "dumps", lambda words, **_: text.decode("latin-1"))
            with contextlib.suppress(UnicodeError), pytest.raises(OSError):
                door.introduce(
                    socket.create_connection(("127.0.0.1", entrance.port), 5.0), KEY, {}, door.time.monotonic() + 5.0
                )
        assert visit(entrance, {"again": 1}) == {"heard": {"again": 1}}


def without_tensorflow(name):
    """A module of isochron.tensorflow, which as a package imports TensorFlow."""
    spec = importlib.util.spec_from_file_location(name, PACKAGE / "tensorflow" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where its dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["board", "roll call"])
def test_what_key_holders_say_is_answered_or_ends_their_connection(kind, chance):
    """Whatever it is; the next one is answered."""
    module = without_tensorflow("roll_call")
    listener = socket.create_server(("127.0.0.1", 0))
    place = listener.getsockname()[:2]
    kept = Board(listener, KEY) if kind == "board" else module.RollCall(listener, KEY, 3)
    for _ in range(200):
        fields = ("name", "value") if kind == "board" else ("message", "ranks")
        hello = {name: random_json(chance) for name in fields if chance.random() < 0.9}
        with contextlib.suppress(OSError):
            door.introduce(socket.create_connection(place, 5.0), KEY, hello, time.monotonic() + 5.0)
    if kind == "board":
        RemoteBoard(*place, KEY, 5.0).set("mine", "value")
        assert kept.get("mine") == "value"
    else:
        assert module.call({1: place}, KEY, 5.0) == {1: 0}


@contextlib.contextmanager
def true_door(chance, *names):
    """One that knows the key, and whose answers are of another version, or of a worker with damaged memory."""

    def answer(guest):
        words = {name: random_json(chance) for name in names if chance.random() < 0.9}
        guest.answer(words if chance.random() < 0.8 else random_json(chance))
        guest.close()

    with opened(answer) as entrance:
        yield "127.0.0.1", entrance.port


def test_a_board_whose_answers_cannot_be_read_counts_as_gone(chance):
    with true_door(chance, "value") as place:
        for _ in range(100):
            with contextlib.suppress(OSError):
                found = RemoteBoard(*place, KEY, 0.0).get("host/0")
                assert found is None or isinstance(found, str), found


def test_a_worker_whose_answer_to_the_roll_call_cannot_be_read_has_not_answered(chance):
    roll_call = without_tensorflow("roll_call")
    with true_door(chance, "step") as place:
        for _ in range(100):
            (step,) = roll_call.call({1: place}, KEY, 5.0).values()
            assert step is None or type(step) is int, step


def test_a_rendezvous_whose_answer_cannot_be_read_is_an_error_that_names_the_first_worker(chance):
    cluster = without_tensorflow("cluster")
    refused = 0
    with true_door(chance, "missing", "addresses") as (address, port):
        place = Place(rank=1, size=3, local_rank=1, launcher="torchrun", address=address, port=port)
        for _ in range(60):
            with pytest.raises(isochron.PeerError) as error:
                cluster._join(place, 1, lambda: KEY, time.monotonic() + 0.2, 5.0)
            assert error.value.ranks == (0,), error.value
            refused += "permitted: the ranks that are missing, or the addresses of all 3" in str(error.value)
    assert refused > 0


def test_what_the_first_worker_says_of_a_rendezvous_is_bounded_by_the_job():
    cluster = without_tensorflow("cluster")
    place = Place(rank=1, size=3, local_rank=1, launcher="torchrun", address="127.0.0.1", port=0)
    for words in ({"missing": [3]}, {"missing": []}, {"missing": [True]}, {"addresses": ["a:1", "b:2"]},
                  {"addresses": ["a:1", "b:2", 3]}, {"addresses": "abc"}, {"missing": "ab"}):  # fmt: skip
        with opened(lambda guest, words=words: (guest.answer(words), guest.close())) as entrance:
            there = dataclasses.replace(place, port=entrance.port)
            with pytest.raises(isochron.PeerError, match="rank 0 at 127.0.0.1:.* answered .*; permitted: the ranks"):
                cluster._join(there, 1, lambda: KEY, time.monotonic() + 5.0, 5.0)


def test_another_host_whose_words_cannot_be_read_counts_as_running(chance):
    options = types.SimpleNamespace(_hosts=3, _node=0)
    said = {"host/1": "still 2 17", "host/2": ""}
    options._hear = said.get
    for _ in range(300):
        words = random_json(chance)
        text = chance.choice(["running 1 2", "done 3 4", "still -1 0", "done", "done 1", "done x 1", "running 1e9 1",
                              "running " + "9" * 5000 + " 1", str(words)])  # fmt: skip
        other = changed(chance, text.encode("utf-8", "replace")).decode("latin-1")
        said["host/2"] = text if chance.random() < 0.3 else other
        first, (state, ended) = launch.Launcher._other_hosts(options)
        assert first == ("still", 2) and state in ("running", "still", "done") and 0 <= ended < 10**9
    said["host/2"] = "done x 1"
    assert launch.Launcher._other_hosts(options) == [("still", 2), ("running", 0)]


def test_another_key_opens_no_door_and_no_other_door_is_taken_for_ours(monkeypatch):
    heard = []

    def admit(guest):
        heard.append(guest.hello)
        echo(guest)

    with opened(admit) as entrance:
        with pytest.raises(OSError, match="key"):
            link = door.knock("127.0.0.1", entrance.port, b"some other key", {}, 0.2).link
    assert heard == []

    # A door that pretends: it lets everybody in, and cannot prove that it knows the key.
    monkeypatch.setattr(door.hmac, "compare_digest", lambda mine, theirs: True)
    with opened(admit, b"some other key") as entrance:
        with socket.create_connection(("127.0.0.1", entrance.port), 5.0) as link:
            monkeypatch.undo()
            with pytest.raises(OSError, match="not of this job|closed"):
                door.introduce(link, KEY, {}, door.time.monotonic() + 5.0)


class Tapped:
    """Between a guest and a door: what the guest sends."""

    def __init__(self, port):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.said = bytearray()
        self._target = port
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def _carry(self):
        guest, _ = self._listener.accept()
        with guest, socket.create_connection(("127.0.0.1", self._target)) as there:
            back = threading.Thread(target=self._copy, args=(there, guest, bytearray()), daemon=True)
            back.start()
            self._copy(guest, there, self.said)
            back.join(10)

    @staticmethod
    def _copy(source, sink, kept):
        with contextlib.suppress(OSError):
            while part := source.recv(4096):
                kept += part
                sink.sendall(part)
            sink.shutdown(socket.SHUT_WR)

    def close(self):
        self._thread.join(10)
        self._listener.close()


def test_the_key_does_not_travel_and_a_recorded_visit_opens_nothing():
    heard = []

    def admit(guest):
        heard.append(guest.hello)
        echo(guest)

    with opened(admit) as entrance:
        tapped = Tapped(entrance.port)
        door.knock("127.0.0.1", tapped.port, KEY, {"rank": 1}, 5.0).link.close()
        tapped.close()
        assert KEY not in tapped.said and b'"rank":1' in tapped.said
        with socket.create_connection(("127.0.0.1", entrance.port), 5.0) as link:
            link.sendall(tapped.said)
            with contextlib.suppress(ConnectionError):
                assert len(link.recv(4096)) == 32  # another challenge
                assert link.recv(4096) == b""
        assert heard == [{"rank": 1}]


def hello_to(link, words, who=b"guest"):
    """What one who knows the key would say to the challenge on this connection."""
    theirs, mine = link.recv(32), bytes(range(32))
    text = door.json.dumps(words, separators=(",", ":")).encode()
    return mine + len(text).to_bytes(4, "big") + text + door._seal(KEY, who, theirs + mine, text)


def test_hellos_that_were_changed_on_their_way_are_not_heard(chance):
    heard = []
    with opened(lambda guest: (heard.append(guest.hello), echo(guest))) as entrance:
        for number in range(300):
            with socket.create_connection(("127.0.0.1", entrance.port), 5.0) as link, contextlib.suppress(OSError):
                said = hello_to(link, {"rank": number})
                other = changed(chance, said)
                if other[: len(said)] != said:  # what comes after a whole hello is another matter
                    link.sendall(other)
                    link.shutdown(socket.SHUT_WR)
                    while link.recv(4096):
                        pass
        assert heard == [] and visit(entrance, {"rank": 1}) == {"heard": {"rank": 1}}


def test_answers_that_were_changed_on_their_way_are_errors_of_the_connection(chance):
    def answer(listener):
        for _ in range(200):
            with listener.accept()[0] as link, contextlib.suppress(OSError):
                link.sendall(bytes(range(32)))
                mine = link.recv(32)
                link.recv(4096)
                text = b'{"addresses":["127.0.0.1:1"]}'
                seal = door._seal(KEY, b"door", bytes(range(32)) + mine, text)
                said = len(text).to_bytes(4, "big") + text + seal
                other = changed(chance, said)
                link.sendall(other if other[: len(said)] != said else b"")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,), daemon=True)
        thread.start()
        for _ in range(200):
            link = socket.create_connection(listener.getsockname(), 5.0)
            with pytest.raises(OSError):
                door.introduce(link, KEY, {"rank": 1}, door.time.monotonic() + 5.0)
        thread.join(10)


def test_who_speaks_slowly_has_the_same_time_as_others(monkeypatch):
    monkeypatch.setattr(door, "HELLO_SECONDS", 0.5)
    with opened(echo) as entrance, socket.create_connection(("127.0.0.1", entrance.port), 30.0) as link:
        with pytest.raises(ConnectionError):
            while True:
                link.sendall(b"x")  # every byte in time, all of them not
                threading.Event().wait(0.05)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o600])
def test_a_key_file_is_for_its_owner_alone(tmp_path, mode):
    path = tmp_path / "key"
    path.write_text("0123456789abcdef\n")
    path.chmod(mode)
    if mode == 0o600:
        assert job_key.read(str(path)) == "0123456789abcdef"
    else:
        with pytest.raises(ValueError, match=f"mode 0{mode:o}; permitted: a file of your own that nobody else can"):
            job_key.read(str(path))


def test_short_keys_are_refused_without_being_told(tmp_path):
    with pytest.raises(ValueError, match="ISOCHRON_JOB_KEY has 6 letters; permitted: a secret of 16") as refused:
        job_key.find({"ISOCHRON_JOB_KEY": "secret"})
    assert "'secret'" not in str(refused.value)
    assert job_key.mixed("a", {"ISOCHRON_JOB_KEY": "x" * 16}) != job_key.mixed("a", {})


def test_workers_of_one_host_share_a_key_by_a_file_for_them_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(job_key.tempfile, "tempdir", str(tmp_path))
    key = job_key.HostKey("meeting-1")
    assert key.find() is None
    made = key.make()
    assert job_key.HostKey("meeting-1").find() == made
    (folder,) = tmp_path.iterdir()
    modes = [path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())]
    assert modes == [0o700, 0o600]
    key.remove()
    assert key.find() is None
    folder.chmod(0o755)  # somebody else may have put something there
    with pytest.raises(isochron.Error, match="not a folder of this user alone"):
        key.make()


# After the handshake.


PUSH, PULL, REPORT, GRADIENT, ANSWER, FAILURE, ALIVE, VALUES = 1, 2, 3, 6, 7, 8, 9, 16  # tags of isochron/server


def link_frame(tag, message, length=None):
    length = len(message) if length is None else length
    return tag.to_bytes(4, "little") + length.to_bytes(8, "little") + message


class Peer:
    """The far end of a connection of a link: sends and reads frames that are sealed as the link's are
    (isochron/server/frame_seal.h)."""

    KEYS = bytes(32), bytes(range(32))  # of the link: outgoing, incoming

    def __init__(self, link, rank):
        ours, self.socket = socket.socketpair()
        self._sealed = [0, 0]
        link.connect(rank, ours.detach(), *self.KEYS)

    def _seal(self, direction, text):
        number, self._sealed[direction] = self._sealed[direction], self._sealed[direction] + 1
        return hmac.digest(self.KEYS[direction], number.to_bytes(8, "little") + text, "sha256")[:16]

    def say(self, head_and_body):
        head, body = head_and_body[:12], head_and_body[12:]
        said = head + self._seal(1, head) + body
        whole = len(body) == int.from_bytes(head[4:], "little")
        self.socket.sendall(said + self._seal(1, body) if body and whole else said)

    def hear(self):
        """The tag and the body."""
        head = self.socket.recv(28, socket.MSG_WAITALL)
        assert head[12:] == self._seal(0, head[:12])
        length = int.from_bytes(head[4:12], "little")
        said = self.socket.recv(length + 16, socket.MSG_WAITALL) if length else b""
        assert not length or said[length:] == self._seal(0, said[:length])
        return int.from_bytes(head[:4], "little"), said[:length]


def hostile_frames(chance):
    yield link_frame(PUSH, b"x", 1 << 40)
    yield link_frame(0, b"")  # no kind
    yield link_frame(9, b"x")
    yield link_frame(99, b"x" * 50)
    yield link_frame(PUSH, b"x" * 50, 100)  # and no more
    yield link_frame(FAILURE, DEEP)
    for _ in range(50):
        yield chance.randbytes(chance.randrange(1, 300))


@contextlib.contextmanager
def linked(timeout=5.0):
    """A link of rank 0, and the other end of its connection to rank 3."""
    link = TcpLink(0, ["here", "nowhere", "nowhere", "there"], timeout)
    theirs = Peer(link, 3)
    with theirs.socket:
        yield link, theirs
    link.leave(orderly=False)


def failure_of(link):
    deadline = time.monotonic() + 10
    while (failure := link.failure) is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return failure


def test_frames_that_are_none_are_errors_that_name_the_sender(chance):
    for said in hostile_frames(chance):
        with linked() as (link, theirs):
            theirs.say(said)
            theirs.socket.shutdown(socket.SHUT_WR)
            failure = failure_of(link)
            assert "rank 3 on there" in failure.text and failure.ranks == [3], (said, failure.text)


def entered(link):
    """The session of one of four workers that are out of step, in its first iteration."""
    layout, options = lay_out([[("f8", 8, 10)]], 4), options_of(sync="asp")
    session = Session(
        Owner(lambda mine: [mine], lambda samples: None, lambda record: None), replica_of(4, options),
        options, link, layout, [Descent(np.zeros(2))], 0)  # fmt: skip
    session.enter()
    return session


@pytest.mark.parametrize("tag", [PUSH, PULL, REPORT, FAILURE, ANSWER, VALUES])
@pytest.mark.parametrize("message", [b"", b"\xff" * 7, b"\xff" * 99, DEEP], ids=len)
def test_requests_that_make_no_sense_end_the_job_with_the_senders_name(tag, message):
    with linked() as (link, theirs):
        session = entered(link)
        theirs.say(link_frame(tag, message))
        assert "rank 3 on there" in failure_of(link).text
        kind, told = theirs.hear()
        assert kind == FAILURE and failure_of(link).text.encode() in told  # and is told so
        session.close(orderly=False)


def push_header(chunk, settings):
    """A PushHeader (isochron/core/dispatch/messages.h) of worker 3's first iteration."""
    worker, iteration, turn, epoch, first, last, samples = 3, 0, 0, 0, 0, 1, 0
    numbers = struct.pack("<8q2d?", chunk, worker, iteration, turn, epoch, first, last, samples, 1.0, 1.0, False)
    return numbers + struct.pack("<I", len(settings)) + settings


def test_settings_that_are_none_end_the_job_with_the_senders_name(chance):
    true = {"lr": 0.5, "momentum": 0.9, "betas": [0.9, 0.99]}
    for number in range(25):
        words = scribbled(chance, true) if number > 1 else {} if number else true
        settings = DEEP if number == 2 else json.dumps(words).encode()
        with linked() as (link, theirs):
            session = entered(link)
            theirs.say(link_frame(PUSH, push_header(0, settings)))
            theirs.say(link_frame(GRADIENT, bytes(16)))
            kind = ALIVE
            while kind == ALIVE:
                kind, said = theirs.hear()
            assert kind in ((ANSWER,) if number == 0 else (ANSWER, FAILURE)), said
            if kind == FAILURE:
                assert failure_of(link).ranks == [3], said
                assert "rank 3 on there sent what cannot be served: " in failure_of(link).text, said
            assert number != 1 or kind == FAILURE
            session.close(orderly=False)


def test_launchers_without_torch_share_what_only_they_can_read_and_write():
    listener = door.listen("127.0.0.1")
    place = listener.getsockname()[:2]
    board = Board(listener, KEY)
    other_host = RemoteBoard(*place, KEY, patience=TIMEOUT)
    board.set("host/0", "running 0 1")
    other_host.set("host/1", "done 1 2")
    assert other_host.get("host/0") == "running 0 1" and board.get("host/1") == "done 1 2"
    assert board.get("host/2") is None and other_host.get("host/2") is None
    for hello in ({"name": "host/1", "value": "forged"}, {"name": "host/1"}):
        with pytest.raises(OSError):
            door.knock(*place, b"another key than theirs", hello, 0.3)
    for hello in ({"name": 1, "value": "x"}, {"name": "host/1", "value": 3}, {}):
        with pytest.raises(OSError):
            door.knock(*place, KEY, hello, 0.3)
    assert other_host.get("host/1") == "done 1 2"


def test_a_launcher_waits_for_that_of_the_first_host_and_not_for_ever():
    with socket.create_server(("127.0.0.1", 0)) as trial:
        port = trial.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        RemoteBoard("127.0.0.1", port, KEY, patience=0.3)
    later = threading.Timer(0.5, lambda: Board(door.listen("127.0.0.1", port), KEY).set("host/0", "running 0 1"))
    later.start()
    assert RemoteBoard("127.0.0.1", port, KEY, patience=30.0).get("host/1") is None
    later.join()
