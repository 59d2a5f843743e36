"""From a snapshot back to the parts of a state, all or none."""

from __future__ import annotations

from contextlib import suppress

from planaria.errors import StateRefused
from planaria.worker import capture, parts, randomness

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from planaria.worker.capture import Saved
    from planaria.worker.upload import Upload


class Return:
    """A way back to saved parts, all or none: `begin` does what may be refused, `finish` the rest.

    `differences` are lines that tell what the snapshot has and the program lacks, and the other way round.
    """

    def __init__(self, saved: Saved, state: dict[str, object], upload: Upload) -> None:
        self._saved = saved
        self._state = state
        self._upload = upload
        self._here = sorted(((name, *saved[name]) for name in state if name in saved), key=_turn)
        self._old: list[tuple[str, str, Any]] = []
        self.differences = _differences(saved, state)

    def begin(self) -> None:
        """Check everything, and load what only its own object can check: sampler, scheduler, generators and the like.

        Raises:
            StateRefused: Something does not fit; nothing was changed.
        """
        for name, kind, content, known in self._here:
            try:
                parts.check(name, kind, content, known, self._state[name])
            except (KeyError, TypeError, ValueError) as exc:
                raise StateRefused(f"{name} in the snapshot is not what a {kind} keeps: {exc!r}") from exc
        for name, kind, content, _ in self._here:
            if kind == parts.MODULE:
                parts.claim(name, content, self._state[name], self._upload)
        for name, kind, content, _ in self._here:
            if kind in parts.BY_THEMSELVES:
                self._load(name, kind, content)

    def _load(self, name: str, kind: str, content: Any) -> None:
        part = self._state[name]
        with suppress(Exception):  # one that does not know where it stands, as a sampler may not, stays where it is
            self._old.append((name, kind, parts.kept_back(part)))
        try:
            parts.set_by_itself(kind, content, part)
        except Exception as exc:  # whatever the user's own class raises
            raise StateRefused(
                f"{name} does not take what the snapshot has: {exc}{self.undo()}", hint=parts.SAME_PROGRAM
            ) from exc

    def undo(self) -> str:
        """Put back what `begin` has loaded; return words about what does not take back what it had, if there is any."""
        torn = []
        for name, kind, old in reversed(self._old):
            try:
                parts.set_by_itself(kind, old, self._state[name])
            except Exception as exc:  # noqa: BLE001  whatever the user's own class raises: the others are put back all the same
                torn.append(f"; {name} does not take back what it had ({exc}), and may be changed")
        self._old = []
        return "".join(torn)

    def finish(self) -> None:
        """Put the rest back.

        Raises:
            Damaged: Something is not whole, which was found out too late: the state is torn.
        """
        for name, kind, content, known in self._here:
            if kind not in parts.BY_THEMSELVES:
                self._state[name] = parts.give_back(kind, content, known, self._state[name], self._upload)
        self._upload.finish()
        if capture.RNG in self._saved:  # last: what came before may have drawn numbers
            randomness.set_states(self._saved[capture.RNG][1], self._upload.gpu)


def give_back(saved: Saved, state: dict[str, object], upload: Upload) -> list[str]:
    """Put saved parts into the state, all or none: everything is checked first. Return lines that tell what differs.

    Raises:
        StateRefused: Something does not fit; nothing was changed.
        Damaged: Something is not whole, which was found out too late: the state is torn.
    """
    way = Return(saved, state, upload)
    way.begin()
    way.finish()
    return way.differences


def _turn(part: tuple[str, str, Any, Any]) -> int:
    """Return when a part is put back: optimizers behind their modules, and values, which make room for both, last."""
    kinds = (parts.MODULE, parts.OPTIMIZER)
    return kinds.index(part[1]) if part[1] in kinds else len(kinds)


def _differences(saved: Saved, state: Mapping[str, object]) -> list[str]:
    lines = []
    if missing := [name for name in state if name not in saved]:
        lines.append(f"the snapshot has no {', '.join(missing)}: left as they are")
    if unknown := [name for name in saved if name not in state and name != capture.RNG]:
        lines.append(
            f"the snapshot has {', '.join(unknown)}, which this program does not name: they are not used, and the next "
            "commit is without them"
        )
    return lines
