"""A folder of images, one folder a class, and one of torchvision's models."""

import torch
from torch import nn
from torchvision import datasets, models
from torchvision.transforms import v2

import lockstep


def classifier(folder, model="resnet18", size=64):
    """Learn `folder`/train, and look at `folder`/test. Images for training are flipped at random."""
    read = [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]
    train, test = (
        datasets.ImageFolder(f"{folder}/{part}", v2.Compose([v2.Resize((size, size)), *more, *read]))
        for part, more in (("train", [v2.RandomHorizontalFlip()]), ("test", []))
    )
    return lockstep.Task(
        model=lambda: models.get_model(model, weights=None, num_classes=len(train.classes)),
        train=train,
        test=test,
        loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        metrics={"accuracy": lambda logits, batch: logits.argmax(1) == batch[1]},
    )
