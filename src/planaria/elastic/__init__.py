"""The agent API that people know: names, signatures and messages of `torch.distributed.elastic` 2.13, without torch.

A thin door over our rooms: what is decided is decided in `agent` and `rendezvous`, what is started is started in `process`.
Change the import root `torch.distributed` to `planaria` and code written against torch's documented names works. Where
torch's behaviour is a defect, ours is right, and `docs/torchrun-compat.md` says so. `planaria run` comes here for
`--logs-specs` alone.
"""
