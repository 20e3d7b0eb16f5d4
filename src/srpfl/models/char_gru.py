"""A recurrent network that reads text character by character."""

from __future__ import annotations

from torch import Tensor, nn


class CharGRU(nn.Module):
    """An embedding, one GRU layer, and a linear ``head`` at every character for the next one.

    >>> import torch
    >>> CharGRU(74)(torch.zeros(2, 64, dtype=torch.long)).shape
    torch.Size([2, 64, 74])
    """

    def __init__(self, tokens: int, *, embed: int = 32, hidden: int = 128) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, embed)
        self.gru = nn.GRU(embed, hidden, batch_first=True)
        self.head = nn.Linear(hidden, tokens)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.gru(self.embed(x))
        logits: Tensor = self.head(states)
        return logits
