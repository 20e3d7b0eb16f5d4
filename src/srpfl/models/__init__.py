"""The paper's networks. They end in logits; any other ``torch.nn.Module`` works as well."""

from srpfl.models.lenet import LeNet5
from srpfl.models.mlp import MLP

__all__ = ["MLP", "LeNet5"]
