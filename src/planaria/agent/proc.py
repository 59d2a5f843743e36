"""What `/proc` says about a process that hangs and the host it is on, and what torch's flight recorder says. Only reads."""

from __future__ import annotations

import os

from planaria.agent.suspects import Count
from planaria.base import linux
from planaria.base.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TICKS = 100.0  # USER_HZ, the same on every machine that Linux runs on for us
_MOST_THREADS = 64
_FILES = ("status", "wchan", "syscall", "stack", "io", "limits")
_HOST_FILES = ("loadavg", "uptime", "meminfo", "pressure/cpu", "pressure/memory", "pressure/io", "diskstats")
_LINES = 60
_SECRETS = ("token", "secret", "password", "passwd", "key", "credential", "auth")
HIDDEN = "***"


def state(pid: int | str) -> str:
    """Return the state's letter, empty when there is no such process."""
    fields = linux.stat_fields(pid)
    return fields[0].decode() if fields else ""


def is_stopped(pid: int) -> bool:
    """Tell whether a signal or a debugger has stopped it."""
    return state(pid) in ("T", "t")


def cpu_s(pid: int) -> float | None:
    """Return the CPU time it has used so far."""
    fields = linux.stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS if len(fields) > 12 else None


def wchan(pid: int | str) -> str:
    """Return the place in the kernel where a process sleeps, or a thread (`PID/task/ID`), if the kernel tells."""
    text = _text(f"/proc/{pid}/wchan")
    return "" if text == "0" else text


def process(pid: int) -> str:
    """Return all that is to be read about a process and its threads."""
    parts = [f"command: {command(linux.read_file(f'/proc/{pid}/cmdline', 1 << 16))}"]
    parts += [f"--- {name}\n{_text(f'/proc/{pid}/{name}', _LINES)}" for name in _FILES]
    parts.append("--- threads: id, name, state, place in the kernel, system call")
    try:
        threads = sorted(os.listdir(f"/proc/{pid}/task"), key=int)
    except OSError:
        threads = []
    for thread in threads[:_MOST_THREADS]:
        where = f"{pid}/task/{thread}"
        name, call = _text(f"/proc/{where}/comm"), _text(f"/proc/{where}/syscall")
        parts.append(f"{thread} {name} {state(where) or '?'} {wchan(where) or '-'} {call}")
    parts += [f"and {len(threads) - _MOST_THREADS} more"] * (len(threads) > _MOST_THREADS)
    return "\n".join(parts) + "\n"


def command(words: bytes) -> str:
    """Return a command line without what may be a secret: its words that name one lose their value, or the word behind them."""
    shown: list[str] = []
    is_next_secret = False
    for word in words.decode("utf-8", "replace").rstrip("\0").split("\0"):
        name, has_value, value = word.partition("=")
        if is_next_secret and not word.startswith("-"):
            shown.append(HIDDEN)
            is_next_secret = False
            continue
        is_secret = any(part in name.lower() for part in _SECRETS)
        is_next_secret = is_secret and not has_value and word.startswith("-")
        shown.append(f"{name}={HIDDEN}" if is_secret and value else _without_user(word))
    return " ".join(shown)


def _without_user(word: str) -> str:
    """Leave user and password out of an address."""
    before, is_address, behind = word.partition("://")
    return f"{before}://{HIDDEN}@{behind.rpartition('@')[2]}" if is_address and "@" in behind else word


def host(folder: str) -> str:
    """Return how the host is: load, memory, pressure, disks."""
    parts = [f"--- {name}\n{_text(f'/proc/{name}', _LINES)}" for name in _HOST_FILES]
    parts.append("--- disks: path, free bytes, bytes, free files")
    for path in (folder, "/tmp", "/dev/shm", "/"):  # noqa: S108  only asked how full they are
        try:
            found = os.statvfs(path)
        except OSError:
            continue
        parts.append(f"{path} {found.f_bavail * found.f_frsize} {found.f_blocks * found.f_frsize} {found.f_favail}")
    return "\n".join(parts) + "\n"


def _text(path: str, lines: int = 1) -> str:
    text = linux.read_file(path, 1 << 16).decode("utf-8", "replace").replace("\0", " ").strip()
    return "\n".join(text.splitlines()[:lines])


def as_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object in some bytes, an empty one where there is none."""
    import json

    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return _dict(found)


def collective(flight: dict[str, Any]) -> tuple[str, tuple[Count, ...]]:
    """Return the collective that a rank is in, by torch's flight recorders, and how many it has begun by process group.

    `flight` has what each recorder tells (`worker.witness`). A group that uses NCCL and Gloo is in both of them and counts in
    each, so its counts have the recorder in their name. Where two recorders tell the same, the first is heard.
    """
    heard: list[object] = []
    inside: list[str] = []
    begun: list[Count] = []
    for recorder, told in flight.items():
        if told not in heard:
            heard.append(told)
            doing, counts = _told_by(recorder, _dict(told))
            inside += [doing] * (bool(doing) and doing not in inside)
            begun += counts
    return " and ".join(inside), tuple(begun)


def _told_by(recorder: str, told: dict[str, Any]) -> tuple[str, list[Count]]:
    groups, entries = _dict(told.get("pg_status")), told.get("entries")
    names, members = _names(entries), _members(_dict(told.get("pg_config")))
    begun: list[Count] = []
    is_inside = False
    for number, status in sorted(groups.items()):
        try:
            last, done = int(status["last_enqueued_collective"]), int(status["last_completed_collective"])
        except (TypeError, KeyError, ValueError):
            continue
        is_inside = is_inside or last > done
        if number in names:  # else none of its collectives is among the newest: nobody knows which group it is
            begun.append(Count(names[number], members.get(names[number], ""), last, is_open=last > done))
    if names.keys() >= groups.keys():  # then those that are not there have begun nothing
        begun += [Count(name, ranks, 0) for name, ranks in members.items() if name not in names.values()]
    named = [replace(count, group=f"{recorder}:{count.group}") for count in begun]
    return (_open_entry(entries) if is_inside else ""), named


def _names(entries: object) -> dict[str, str]:
    """Return the names of process groups, the same on all their ranks, by their numbers, which are this process's own."""
    found: dict[str, str] = {}
    for entry in entries if isinstance(entries, list) else ():
        name = entry.get("process_group") if isinstance(entry, dict) else None
        if isinstance(name, list) and name:
            found[str(entry.get("pg_id"))] = str(name[0])
    return found


def _members(config: dict[str, Any]) -> dict[str, str]:
    """Return the ranks of process groups by name. Gloo records neither."""
    ranks = {str(name): str(_dict(told).get("ranks", "")) for name, told in config.items()}
    return {name: text for name, text in ranks.items() if name and text not in ("", "[]")}


def _dict(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _open_entry(entries: object) -> str:
    """Name the newest collective that is not over."""
    for entry in reversed(entries) if isinstance(entries, list) else ():
        if isinstance(entry, dict) and not entry.get("retired") and entry.get("state") != "completed":
            return f"{entry.get('profiling_name', 'unknown')} number {entry.get('collective_seq_id', '?')}"
    return "unknown"
