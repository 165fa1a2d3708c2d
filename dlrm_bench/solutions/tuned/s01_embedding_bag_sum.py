"""Many rows of long bags, or several short bags, under way in each warp.

By Claude (Anthropic). The kernel is the one that the models' substitution has in its pool.
"""

import torch

from addrfrac.dlrm_bench.p01_embedding_bag_sum import Model
from addrfrac.kernels.embedding_bag import embedding_bag


class ModelNew(Model):
    def forward(self, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        if indices.is_floating_point():
            indices, offsets = indices.long(), offsets.long()
        return embedding_bag(self.weight.unsqueeze(0), indices.contiguous(), offsets.contiguous())[:, 0]
