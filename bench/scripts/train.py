"""Train a small model for a fixed number of steps, and say `late` when four fifths of them are done: a job that never fails."""

import os

import torch

STEPS = int(os.environ.get("STEPS", "4000"))

torch.manual_seed(5)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(64, 256)
for step in range(STEPS):
    loss = (model(batch) - batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == STEPS * 4 // 5:
        os.write(1, b"late\n")
