"""Start an agent from a program: describe the job in a `LaunchConfig`, call it like a function, get results by rank.

`planaria.launcher` is the same under the name that torch has for it. This room starts; what is decided is the agent's.
"""

from planaria.elastic.launcher.api import LaunchConfig, elastic_launch, launch_agent

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]
