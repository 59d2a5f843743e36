"""A cluster in virtual time: an API server, a scheduler, kubelets, a training run, and an operator that can be killed."""
