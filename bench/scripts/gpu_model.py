"""A small GPT and its AdamW, whose state has about a given size: parameters and two moments, 12 bytes a parameter."""

import torch
from torch import nn
from torch.nn import functional

SIZES = {"1.6 GB": (12, 768, 12, 64000), "12 GB": (24, 1792, 14, 64000), "tiny": (2, 64, 2, 1000)}
CONTEXT = 1024


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = (*x.shape[:2], self.heads, -1)
        query, key, value = (part.view(shape).transpose(1, 2) for part in self.attend(self.before(x)).chunk(3, -1))
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.join(found.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.widen(self.between(x))))


class Gpt(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, words: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last = nn.LayerNorm(width)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words) + self.place.weight[: words.shape[1]]
        for block in self.blocks:
            x = block(x)
        scores = functional.linear(self.last(x[:, :-1]), self.embed.weight)
        return functional.cross_entropy(scores.flatten(0, 1).float(), words[:, 1:].flatten())


def build(size: str, device: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    with torch.device(device):
        model = Gpt(*SIZES[size])
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def batch(size: str, rows: int, device: str) -> torch.Tensor:
    return torch.randint(0, SIZES[size][3], (rows, CONTEXT if size != "tiny" else 32), device=device)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, words: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad(set_to_none=True)
    loss = gradients(model, words)
    optimizer.step()
    return loss


def gradients(model: nn.Module, words: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=words.is_cuda):
        loss: torch.Tensor = model(words)
    loss.backward()
    return loss


def tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    states = [item for state in optimizer.state.values() for item in state.values()]
    return [*(part.detach() for part in model.parameters()), *states]
