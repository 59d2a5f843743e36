"""Exact data: every sample once per epoch, whatever dies, comes or goes in the middle of it.

All epochs are one stream of samples that a seed decides, and where training stands in it is one number. Ranks cut their batches
out of it by arithmetic, so that nothing has to be agreed on and nothing depends on the size of the world. The number moves by
what the loop took out of its loader, never by what was loaded ahead. Needs neither torch nor numpy, and serves both.
"""

from __future__ import annotations

from planaria.worker.data.loss import accumulating, weighted
from planaria.worker.data.order import Shuffled
from planaria.worker.data.permutation import Permutation
from planaria.worker.data.portions import Portion, turns_per_step
from planaria.worker.data.sampler import ElasticSampler
from planaria.worker.data.seeds import Pick, sample_seed
from planaria.worker.data.shard_order import ShardOrder
from planaria.worker.data.shards import ShardedData

__all__ = [
    "ElasticSampler",
    "Permutation",
    "Pick",
    "Portion",
    "ShardOrder",
    "ShardedData",
    "Shuffled",
    "accumulating",
    "sample_seed",
    "turns_per_step",
    "weighted",
]
