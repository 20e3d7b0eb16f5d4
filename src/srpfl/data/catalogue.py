"""The image data sets that are known by name: what they are, and where they are usually found."""

from __future__ import annotations

from dataclasses import dataclass

from srpfl.data.base import Transform


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the loader must know of a data set before it has seen a file of it."""

    name: str
    classes: int
    channels: int
    # Mean and standard deviation per channel of the published training images, scaled to [0, 1]:
    # constants, so that neither a subset nor anybody's test data changes what a model is fed.
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmented: bool = False  # crop and flip in training
    layouts: tuple[str, ...] = ("Parquet",)
    folders: tuple[str, ...] = ()  # sub-folders that it is usually in, besides its name
    label: str = "label"  # the column of a Parquet file
    writer: str | None = None
    prefix: str = ""  # of the names of IDX files
    transposed: bool = False  # IDX images are stored column by column
    inverted: bool = False  # ink is dark in the files
    hub: str | None = None  # its repository on the Hugging Face Hub
    source: str  # where else to get it

    def transform(self, augment: bool) -> Transform:
        crops = augment and self.augmented
        return Transform(self.mean, self.std, crop=4 if crops else 0, flip=crops)


KNOWN = {
    known.name: known
    for known in (
        Known(
            name="cifar10",
            classes=10,
            channels=3,
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2470, 0.2435, 0.2616),
            augmented=True,
            layouts=("Parquet", "binary"),
            folders=("cifar-10", "cifar-10-batches-bin"),
            hub="uoft-cs/cifar10",
            source="the binary version from https://www.cs.toronto.edu/~kriz/cifar.html",
        ),
        Known(
            name="cifar100",
            classes=100,
            channels=3,
            mean=(0.5071, 0.4865, 0.4409),
            std=(0.2673, 0.2564, 0.2762),
            augmented=True,
            layouts=("Parquet", "binary"),
            folders=("cifar-100", "cifar-100-binary"),
            label="fine_label",
            hub="uoft-cs/cifar100",
            source="the binary version from https://www.cs.toronto.edu/~kriz/cifar.html",
        ),
        Known(
            name="emnist",  # the 47 classes of its "balanced" split
            classes=47,
            channels=1,
            mean=(0.1751,),
            std=(0.3332,),
            layouts=("Parquet", "IDX"),
            folders=("emnist-balanced", "EMNIST/raw"),
            prefix="emnist-balanced-",
            transposed=True,
            source="the balanced split from https://www.nist.gov/itl/products-and-services/"
            "emnist-dataset",
        ),
        Known(
            # LEAF's images are black on white. They are stored inverted here, so that ink is high
            # and paper is 0 in every handwriting data set alike.
            name="femnist",
            classes=62,
            channels=1,
            mean=(0.0384,),  # of 376 writers' training images
            std=(0.1639,),
            layouts=("Parquet", "LEAF"),
            label="character",
            writer="writer_id",
            inverted=True,
            hub="flwrlabs/femnist",
            source="LEAF's preprocess.sh, https://github.com/TalwalkarLab/leaf",
        ),
        Known(
            name="mnist",
            classes=10,
            channels=1,
            mean=(0.1307,),
            std=(0.3081,),
            layouts=("Parquet", "IDX"),
            folders=("MNIST/raw",),
            hub="ylecun/mnist",
            source="the IDX files from https://yann.lecun.com/exdb/mnist",
        ),
        Known(
            name="fashion-mnist",
            classes=10,
            channels=1,
            mean=(0.2860,),
            std=(0.3530,),
            layouts=("Parquet", "IDX"),
            folders=("fashion_mnist", "FashionMNIST/raw"),
            hub="zalando-datasets/fashion_mnist",
            source="Debian's package dataset-fashion-mnist or "
            "https://github.com/zalandoresearch/fashion-mnist",
        ),
    )
}
