"""Jobs on Kubernetes: an operator that keeps `PyTorchJob`s alive and lets them grow while it pays.

What should be is decided by pure functions from what was seen; drivers look, act and write. This room starts no training and
opens no rendezvous: agents in the pods do. It talks to the API server alone, and nothing that runs in a pod imports it.
"""
