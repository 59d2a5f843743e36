"""`torch.distributed.launcher` under our root: everything is in `planaria.elastic.launcher`."""

from planaria.elastic.launcher.api import LaunchConfig, elastic_launch, launch_agent

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]
