"""What the workers of a crew run, as text: `JOB`, `FAILS` or `GLOO`, all with `NOTES` beside them.

`JOB` needs no torch: an all-reduce over MASTER_ADDR and MASTER_PORT that fails as Gloo does when a peer goes away.
"""

NOTES = '''\
"""What every worker of these tests notes, whatever it works at."""
import json, os, signal, struct, threading, time

ROOM = os.path.dirname(os.path.abspath(__file__))
NODE = os.environ["CREW_NODE"]
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ROUND, LIFE = int(os.environ["PLANARIA_ROUND"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def note(what, **more):
    line = {"what": what, "node": NODE, "pid": os.getpid(), "rank": RANK, "world": WORLD, "round": ROUND, "life": LIFE}
    line.update(at=time.monotonic(), **more)
    fd = os.open(ROOM + "/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, (json.dumps(line) + "\\n").encode())
    os.close(fd)


def is_over():
    """Whether the test wants the job to end well; rank 0 asks, and tells the others."""
    return os.path.exists(ROOM + "/stop")


def is_last(step):
    """Whether the test wants the job to end well after this step or an earlier one."""
    try:
        with open(ROOM + "/stop") as file:
            return step >= int(file.read())
    except FileNotFoundError:
        return False


def started():
    """When this process came to be, by the kernel's clock, which ticks 100 times a second: at least a tick too late."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    asleep = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    return min((ticks + 1) / os.sysconf("SC_CLK_TCK") - asleep, time.monotonic())


_fd = os.open(f"{ROOM}/alive/{os.getpid()}", os.O_WRONLY | os.O_CREAT, 0o644)


def stamp():
    os.pwrite(_fd, struct.pack("d", time.monotonic()), 0)


def keep_stamping(every_s=0.01):
    """Stamp from a thread, for a job may hang in a connect, a send or a collective."""
    pause = threading.Event()

    def run():
        while True:
            stamp()
            pause.wait(every_s)

    threading.Thread(target=run, daemon=True).start()


stamp()
note("began", started=started(), reason=os.environ.get("PLANARIA_RESTART_REASON", ""), master=os.environ["MASTER_ADDR"])
'''

JOB = '''\
"""An all-reduce without torch: sums of ranks, over and over, until a file appears."""
from notes import *
keep_stamping()
import socket, sys

STEP_S = 0.02
ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
FAMILY = socket.AF_INET6 if ":" in ADDRESS[0] else socket.AF_INET


def lost(peer):
    note("lost", peer=peer)
    sys.exit("Connection closed by peer [%s]" % peer)


def read(peer, size=8):
    data = b""
    while len(data) < size:
        try:
            chunk = peer.recv(size - len(data))
        except OSError:
            chunk = b""
        if not chunk:
            lost("%s:%s" % ADDRESS)
        data += chunk
    return data


def write(peer, data):
    try:
        peer.sendall(data)
    except OSError:
        lost("%s:%s" % ADDRESS)


def met(total):
    assert total == WORLD * (WORLD - 1) // 2, total
    note("met")


def lead():
    door = socket.socket(FAMILY)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.bind(("", ADDRESS[1]))
    door.listen(64)
    peers = []
    while len(peers) < WORLD - 1:
        peer = door.accept()[0]
        hello = read(peer)
        assert struct.unpack("q", hello)[0] == ROUND, (hello, ROUND)
        peers.append(peer)
    count = 0
    while True:
        over = is_over()
        total = sum(struct.unpack("q", read(peer))[0] for peer in peers)
        for peer in peers:
            write(peer, struct.pack("q", -1 if over else total))
        if count == 0:
            met(total)
        if over:
            return
        count += 1
        time.sleep(STEP_S)  # what a step would take: without it the job eats the cores its agents need


def follow():
    while True:
        try:
            peer = socket.socket(FAMILY)
            peer.settimeout(1)
            peer.connect(ADDRESS)
            break
        except OSError:
            peer.close()
            time.sleep(0.01)  # rank 0 does not listen yet; nothing tells when it does
    peer.setblocking(True)
    write(peer, struct.pack("q", ROUND))
    count = 0
    while True:
        write(peer, struct.pack("q", RANK))
        total = struct.unpack("q", read(peer))[0]
        if total < 0:
            return
        if count == 0:
            met(total)
        count += 1


lead() if RANK == 0 else follow()
note("ended")
'''

FAILS = '''\
"""Rank 2 of three fails in the first life, and rank 1 in the second."""
from notes import *
import sys

if LIFE == 0 and RANK == 2:
    sys.exit(3)
if LIFE == 1 and RANK == 1:
    raise ValueError("the cause")
signal.pause()
'''

GLOO = '''\
"""An unmodified training script, but for its diary: all-reduce until it is told to stop."""
from notes import *
keep_stamping()
from datetime import timedelta
import torch, torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=60))
count = 0
while True:
    told = torch.tensor([float(RANK), float(RANK == 0 and is_over())])
    dist.all_reduce(told)
    assert told[0] == WORLD * (WORLD - 1) / 2
    if count % 20 == 0:
        note("met" if count == 0 else "step", step=count)
    count += 1
    if told[1]:
        break
    time.sleep(0.05)  # what a step would take
dist.destroy_process_group()
note("ended")
'''
