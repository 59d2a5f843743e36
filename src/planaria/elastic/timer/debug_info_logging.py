"""Where people hang what they want to know about timers that expired."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)

__all__ = ["log_debug_info_for_expired_timers"]


def log_debug_info_for_expired_timers(run_id: str, expired_timers: dict[int, list[str]]) -> None:
    """Log the timers that expired, by the pid of their process; nothing when there are none."""
    if expired_timers:
        logger.info("Timers expired for run:[%s] [%s].", run_id, expired_timers)
