"""Where an agent speaks: the launcher's own streams, which it shares with its workers."""

from __future__ import annotations

import os

from planaria.process.sink import ConsoleSink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.base.loop import Loop

CLEAR_LINE = "\r\x1b[K"
FLUSH_S = 10.0  # how long the end waits for a reader of our output that has fallen behind


class Screen:
    """Where the agent speaks: stderr, one `planaria: ` line at a time, after whatever workers said before.

    A passing line stays on a terminal until the next line of ours; elsewhere it is a line like others, if it says anything new.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.stdout = ConsoleSink(loop, 1, self._say_dead)
        self.stderr = ConsoleSink(loop, 2)
        self.is_terminal = os.isatty(2)
        self._passing = ""

    def say(self, text: str, *, passing: bool = False) -> None:
        """Say a line."""
        line = f"planaria: {text.rstrip()}"
        if passing and line == self._passing:
            return
        clear = CLEAR_LINE if self._passing and self.is_terminal else ""
        self._passing = line if passing else ""
        shown = _cut_to_terminal(line) if passing and self.is_terminal else f"{line}\n"
        self.stderr.write(f"{clear}{shown}".encode("utf-8", "backslashreplace"))

    def _say_dead(self, problem: OSError) -> None:
        self.say(f"cannot write to standard output any more ({problem.strerror}); the workers go on")

    def flush(self) -> None:
        """Show what was said before, if anybody reads it in time."""
        deadline = self._loop.now() + FLUSH_S
        self.stdout.flush(deadline)
        self.stderr.flush(deadline)


def _cut_to_terminal(line: str) -> str:
    """Return what of a line fits in one row: the rest would wrap, and a row above cannot be cleared."""
    try:
        columns = os.get_terminal_size(2).columns
    except OSError:  # it was closed meanwhile
        columns = 0
    return line[: (columns or 80) - 1]
