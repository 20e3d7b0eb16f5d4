"""The paper's networks, and others for images, text and signals. They end in a linear layer, which
is the part to make personal; any other ``torch.nn.Module`` works as well."""

from srpfl.models.char_gru import CharGRU
from srpfl.models.char_transformer import CharTransformer
from srpfl.models.convnet1d import ConvNet1d
from srpfl.models.lenet import LeNet5
from srpfl.models.lora import Adapters, lora, merged
from srpfl.models.mlp import MLP
from srpfl.models.mobilenet import MobileNet
from srpfl.models.recomputed import recomputed
from srpfl.models.resnet import ResNet
from srpfl.models.vgg import VGG

__all__ = [
    "MLP",
    "VGG",
    "Adapters",
    "CharGRU",
    "CharTransformer",
    "ConvNet1d",
    "LeNet5",
    "MobileNet",
    "ResNet",
    "lora",
    "merged",
    "recomputed",
]
