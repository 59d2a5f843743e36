"""Start workers and wait for them, under the names of `torch.distributed.elastic.multiprocessing`."""
