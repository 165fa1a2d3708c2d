"""torchvision's convolutional networks and vision transformer, at 224 x 224."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from addrfrac.errors import AddrfracError
from addrfrac.records import Workload
from addrfrac.workloads.step import SEED, Step, generator, inference, training, weight_dtype
from addrfrac.workloads.weights import load_checkpoint, randomise

if TYPE_CHECKING:
    import torch

    from addrfrac.records import Configuration


def _resnet50(tiny: bool) -> Any:
    from torchvision.models.resnet import Bottleneck, ResNet

    return ResNet(Bottleneck, [1, 1, 1, 1], num_classes=10) if tiny else ResNet(Bottleneck, [3, 4, 6, 3])


def _vit_l16(tiny: bool) -> Any:
    from torchvision.models.vision_transformer import VisionTransformer

    if tiny:
        return VisionTransformer(
            image_size=32, patch_size=16, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=10
        )
    return VisionTransformer(image_size=224, patch_size=16, num_layers=24, num_heads=16, hidden_dim=1024, mlp_dim=4096)


def _convnext_base(tiny: bool) -> Any:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    if tiny:
        return ConvNeXt([CNBlockConfig(16, 32, 1), CNBlockConfig(32, None, 1)], num_classes=10)
    stages = [
        CNBlockConfig(128, 256, 3),
        CNBlockConfig(256, 512, 3),
        CNBlockConfig(512, 1024, 27),
        CNBlockConfig(1024, None, 3),
    ]
    return ConvNeXt(stages, stochastic_depth_prob=0.5)


def _build(
    architecture: Callable[[bool], Any],
    configuration: Configuration,
    device: torch.device,
    *,
    tiny: bool = False,
) -> Step:
    """Infer: one forward pass. Train: cross entropy and SGD with momentum over one batch of random images."""
    import torch

    torch.manual_seed(SEED)
    with device:
        model = architecture(tiny)
    if configuration.weights == "random":
        randomise(model, device)
    else:
        _load(model, configuration.weights)
    model = model.to(dtype=weight_dtype(configuration))
    size, classes = (32, 10) if tiny else (224, 1000)
    source = generator(device, 1)
    images = torch.randn(configuration.batch, 3, size, size, device=device, generator=source).to(
        weight_dtype(configuration)
    )
    if configuration.layout == "channels-last":
        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    if configuration.mode == "infer":
        return inference(model, (images,), configuration, device, samples=configuration.batch)
    labels = torch.randint(classes, (configuration.batch,), device=device, generator=source)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)

    def loss() -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(images), labels)

    return training(model, loss, optimizer, configuration, device, samples=configuration.batch)


def _load(model: torch.nn.Module, weights: str) -> None:
    """Weights from a state dict's path, or by torchvision's name such as ResNet50_Weights.IMAGENET1K_V2."""
    if Path(weights).is_file():
        load_checkpoint(model, Path(weights))
        return
    import torchvision

    try:
        state = torchvision.models.get_weight(weights).get_state_dict(progress=False)
        model.load_state_dict(state)
    except (ValueError, KeyError, AttributeError, OSError, RuntimeError) as error:
        raise AddrfracError(
            f"no weights {weights!r} for this model ({error}); give a state dict's path or a name like "
            "ResNet50_Weights.IMAGENET1K_V2"
        ) from error


def _workload(name: str, about: str, architecture: Callable[[bool], Any], **defaults: Any) -> Workload:
    return Workload(
        name=name,
        about=about,
        build=partial(_build, architecture),
        defaults={"batch": 64} | defaults,
        modes=("infer", "train"),
        options=frozenset({"layout"}) if defaults.get("layout") else frozenset(),
        sample="images",
        weights_dtype="fp32",  # as torchvision publishes them
    )


RESNET50 = _workload(
    "resnet50", "ResNet-50 v1.5 (torchvision), 224 x 224; a step is one batch", _resnet50, layout="channels-last"
)
VIT_L16 = _workload("vit-l16", "ViT-L/16 (torchvision), 224 x 224; a step is one batch", _vit_l16)
CONVNEXT_BASE = _workload(
    "convnext-base",
    "ConvNeXt-Base (torchvision), 224 x 224; a step is one batch",
    _convnext_base,
    layout="channels-last",
)
WORKLOAD = RESNET50
