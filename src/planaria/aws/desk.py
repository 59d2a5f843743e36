"""What every verb has at hand: the command line, AWS, somebody to tell, a clock."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from planaria.aws.apply import Hands
from planaria.aws.session import Cloud
from planaria.aws.show import as_data, as_text
from planaria.aws.specs import Specs
from planaria.aws.steps import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Made once by `main`, and by tests."""

    options: Namespace
    script_args: tuple[str, ...]
    specs: Specs | None  # of --specs_file, where the verb has one
    environ: Mapping[str, str]
    cloud: Cloud
    say: Callable[[str], None]  # progress, to standard error
    show: Callable[[str], None]  # the answer, to standard output
    pause: Callable[[float], None]
    now: Callable[[], float]  # monotonic
    utc: Callable[[], datetime]
    noise: Callable[[int], str]  # so many random bytes, in hexadecimal

    @property
    def hands(self) -> Hands:
        """Return what carrying out a plan needs."""
        return Hands(self.cloud, self.say, self.pause, self.now)

    def answer(self, text: str, data: object) -> None:
        """Answer as text, or with `--json` as JSON."""
        self.show(json.dumps(data, indent=2) + "\n" if self.options.json else text)

    def show_plan(self, plan: Plan) -> None:
        """Print a plan as `--dry-run` does."""
        self.answer(as_text(plan), as_data(plan))
