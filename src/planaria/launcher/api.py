"""`torch.distributed.launcher.api` under our root: everything is in `planaria.elastic.launcher.api`."""

from planaria.elastic.launcher.api import (
    LaunchConfig,
    _get_addr_and_port,
    _get_entrypoint_name,
    elastic_launch,
    launch_agent,
)

__all__ = ["LaunchConfig", "_get_addr_and_port", "_get_entrypoint_name", "elastic_launch", "launch_agent"]
