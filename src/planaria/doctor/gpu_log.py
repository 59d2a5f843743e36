"""What the kernel's log says about GPUs: errors, and the resets after which they do not count any more. Pure."""

from __future__ import annotations

from planaria.base.value import Value, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

RECOVERED = 154
"""Not an error: newer drivers log with this number that a GPU wants a reset, and that it had one."""
_LOADED = "NVRM: loading NVIDIA"
_XID = "NVRM: Xid ("


class Xid(Value):
    """An error that the driver logged, and how long ago; `is_over`: its GPU was reset, or the driver loaded, since then."""

    device: str
    number: int
    age_s: float
    is_over: bool = False


def read_log(records: Iterable[bytes], now: float) -> tuple[Xid, ...]:
    """Return the errors of all GPUs, oldest first. `now` is the kernel's clock, in seconds."""
    found: list[Xid] = []
    for record in records:
        head, _, text = record.decode("utf-8", "replace").partition(";")
        if _LOADED in text:
            found = [replace(one, is_over=True) for one in found]
            continue
        xid = _xid(head, text, now)
        if xid is None:
            continue
        if xid.number != RECOVERED:
            found.append(xid)
        elif "(None)" in text.rpartition(" to ")[2]:
            found = [replace(one, is_over=True) if one.device == xid.device else one for one in found]
    return tuple(found)


def _xid(head: str, text: str, now: float) -> Xid | None:
    """Read `6,1234,5678901234,-` and `NVRM: Xid (PCI:0000:3b:00): 79, pid=...`: the third number is in microseconds."""
    if _XID not in text:
        return None
    device, _, rest = text.partition(_XID)[2].partition("):")
    number = rest.strip().partition(",")[0].strip()
    at = head.split(",")[2] if head.count(",") >= 2 else ""
    if not number.isdigit() or not at.isdigit():
        return None
    return Xid(device.partition(" ")[0], int(number), max(0.0, now - int(at) / 1_000_000))
