"""Small things that torch's API offers beside the agent: macros, loggers, samplers. The names are torch's."""

from __future__ import annotations

from planaria.elastic.utils.api import get_env_variable_or_raise, get_socket_with_port, macros

__all__ = ["get_env_variable_or_raise", "get_socket_with_port", "macros"]
