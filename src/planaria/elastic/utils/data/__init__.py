"""Iterators and samplers for data that is read again after a restart."""

from __future__ import annotations

from planaria.elastic.utils.data.cycling_iterator import CyclingIterator
from planaria.elastic.utils.data.elastic_distributed_sampler import ElasticDistributedSampler

__all__ = ["CyclingIterator", "ElasticDistributedSampler"]
