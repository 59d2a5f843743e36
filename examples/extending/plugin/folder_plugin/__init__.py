"""A rendezvous backend and a log spec that live outside of planaria: install this folder with pip, then use their names.

pip install examples/extending/plugin
LaunchConfig(..., rdzv_backend="folder", rdzv_endpoint="/mnt/shared/job")
planaria run --rdzv-backend=folder --rdzv-endpoint=/mnt/shared/job ...
planaria run --logs-specs=flat --log-dir=logs ...
"""
