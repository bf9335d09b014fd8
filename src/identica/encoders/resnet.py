"""Residual networks on images (He et al., 2015): ResNet18, 34 and 50, and the encoder of paper A made of one.

The parameters have the names that torchvision gives them, so that weights saved from there load here; torchvision
itself is not needed. The 50-layer network has its stride in the 3×3 convolution, as torchvision's has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from identica._numbers import whole_number
from identica._randomness import Randomness
from identica.encoders.base import make_linear, stretch_layers, turn_layers, weight_generator
from identica.encoders.heads import make_head
from identica.encoders.scaffold import FADED, Scaffold, fading
from identica.spaces import Space, Sphere

Stem = Literal["large", "small"]

#: Images that are encoded at once in evaluation mode without gradients, where the batch does not matter to the result.
CHUNK = 1024


class BasicBlock(nn.Module):
    """relu(x + bn(conv3×3(relu(bn(conv3×3(x)))))), the first convolution with the stride."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int, generator: torch.Generator) -> None:
        super().__init__()
        self.conv1, self.bn1 = _convolution(channels, width, 3, stride, generator), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _convolution(width, width, 3, 1, generator), nn.BatchNorm2d(width)
        self.downsample = _shortcut(channels, width, stride, generator)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, channels, H, W) -> (n, width, H/stride, W/stride)``."""
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        return functional.relu(y + (x if self.downsample is None else self.downsample(x)), inplace=True)


class Bottleneck(nn.Module):
    """The same with convolutions 1×1, 3×3 (with the stride) and 1×1, the last four times as wide."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int, generator: torch.Generator) -> None:
        super().__init__()
        wide = self.expansion * width
        self.conv1, self.bn1 = _convolution(channels, width, 1, 1, generator), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _convolution(width, width, 3, stride, generator), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = _convolution(width, wide, 1, 1, generator), nn.BatchNorm2d(wide)
        self.downsample = _shortcut(channels, wide, stride, generator)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, channels, H, W) -> (n, 4·width, H/stride, W/stride)``."""
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = functional.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        return functional.relu(y + (x if self.downsample is None else self.downsample(x)), inplace=True)


_LAYERS: dict[int, tuple[type[BasicBlock] | type[Bottleneck], tuple[int, int, int, int]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
}


class ResNet(nn.Module):
    """Images ``(n, 3, H, W)`` to ``(n, outputs)``.

    depth: 18, 34 or 50.
    outputs: of the last, linear layer: the number of classes, or of features.
    stem: "large", a 7×7 convolution with stride 2 and a pooling with stride 2, as published, for images of about
        64 pixels and more; "small", a 3×3 convolution without either, for images of about 32 pixels, which the
        large stem would shrink to nothing.
    seed: a number or a generator for the initial weights, normal after He et al. (fan out) for convolutions.

    >>> network = ResNet(18)
    >>> sum(parameter.numel() for parameter in network.parameters())
    11689512
    """

    def __init__(self, depth: int = 18, outputs: int = 1000, *, stem: Stem = "large", seed: Randomness = 0) -> None:
        super().__init__()
        if depth not in _LAYERS:
            raise ValueError(f"depth of ResNet is one of {', '.join(map(str, _LAYERS))}, not {depth!r}.")
        if stem not in get_args(Stem):
            raise ValueError(f'stem of ResNet is "large" or "small", not {stem!r}.')
        self.depth, self.stem = depth, stem
        self.outputs = whole_number(outputs, "outputs of ResNet")
        generator = weight_generator(seed)
        self.conv1 = _convolution(3, 64, 7 if stem == "large" else 3, 2 if stem == "large" else 1, generator)
        self.bn1 = nn.BatchNorm2d(64)
        block, counts = _LAYERS[depth]
        channels = 64
        for k, count in enumerate(counts):
            width, strides = 64 * 2**k, [1 if k == 0 else 2, *[1] * (count - 1)]
            blocks = []
            for stride in strides:
                blocks.append(block(channels, width, stride, generator))
                channels = block.expansion * width
            self.add_module(f"layer{k + 1}", nn.Sequential(*blocks))
        self.fc = make_linear(channels, self.outputs, generator)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, 3, H, W) -> (n, outputs)``."""
        return self.fc(self.features(x))

    def features(self, x: Tensor) -> Tensor:
        """What the last layer sees, averaged over the image: ``(n, 3, H, W) -> (n, 512 or 2048)``."""
        x = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        if self.stem == "large":
            x = functional.max_pool2d(x, 3, stride=2, padding=1)
        for k in range(4):
            x = self.get_submodule(f"layer{k + 1}")(x)
        return x.mean(dim=(2, 3))

    def load_weights(self, weights: Mapping[str, Tensor], *, last_layer: bool = True) -> None:
        """Take weights under torchvision's names, such as a state dict that was saved from there.

        last_layer: False leaves ``fc`` as it is, for weights trained with another number of classes.

        All or nothing: names that are missing, unknown or belong to another shape are an error that lists them.
        """
        own = self.state_dict()
        given = {name: value for name, value in weights.items() if last_layer or not name.startswith("fc.")}
        wanted = {name for name in own if last_layer or not name.startswith("fc.")}
        # Weights from before this counter existed lack it, and nothing here depends on it.
        missing = [name for name in own if name in wanted - set(given) and not name.endswith("num_batches_tracked")]
        unknown = [name for name in given if name not in own]
        shapes = [
            f"{name} of shape {tuple(value.shape)} in place of {tuple(own[name].shape)}"
            for name, value in given.items()
            if name in own and value.shape != own[name].shape
        ]
        problems = [
            f"{what}: {_listed(names)}"
            for what, names in (("missing", missing), ("unknown", unknown), ("of another shape", shapes))
            if names
        ]
        if problems:
            raise ValueError(
                f"These weights do not fit a ResNet{self.depth} with the {self.stem} stem and {self.outputs} outputs; "
                f"{'; '.join(problems)}. Choose the depth, stem and outputs they were trained with"
                + (", or pass last_layer=False to leave fc as it is." if last_layer else ".")
            )
        self.load_state_dict({**own, **given})


class ResNetEncoder(nn.Module):
    """A ResNet to 10·N features, a leaky ReLU, a linear layer to N codes and the head of ``space`` (A, Sec. A.3).

    Takes images ``(n, 3, H, W)`` of any size, bytes or floating-point numbers in [0, 1], subtracts the mean of each
    colour and divides by its deviation. Both are buffers, computed by :meth:`prepare` or given to
    :meth:`normalise_with`; until then the images stay as they are.

    depth, stem: as of :class:`ResNet`.
    negative_slope: of the leaky ReLU.
    learn_bound, learn_radius: see :func:`identica.encoders.heads.make_head`.
    scaffold: so many further codes while it is trained (:class:`~identica.encoders.Scaffold`); in evaluation mode there
        are none, and ``encoder.scaffold = None`` removes them.
    scaffold_until: the part of the steps after which they have faded.
    seed: a number or a generator for the initial weights.

    Images run channels-last. In evaluation mode without gradients they are encoded a thousand at a time, so that any
    number of them fits into memory.

    >>> from identica.spaces import Box
    >>> encoder = ResNetEncoder(Box(10, low=-1.0), stem="small")
    >>> encoder(torch.zeros(2, 3, 8, 8, dtype=torch.uint8)).shape
    torch.Size([2, 10])
    """

    #: Images are expensive and have many pixels each: so many give the normalisation to three digits.
    prepare_samples = 256

    mean: Tensor
    deviation: Tensor
    fitted: Tensor

    def __init__(
        self,
        space: Space,
        depth: int = 18,
        *,
        stem: Stem = "large",
        negative_slope: float = 0.01,
        learn_radius: bool = False,
        learn_bound: bool = True,
        scaffold: int = 0,
        scaffold_until: float = FADED,
        seed: Randomness = 0,
    ) -> None:
        super().__init__()
        if scaffold and isinstance(space, Sphere):
            raise ValueError("A scaffold stands beside codes in a box or without bounds: on a sphere leave it at 0.")
        generator = weight_generator(seed)
        self.space, self.negative_slope = space, float(negative_slope)
        self.learn_radius, self.learn_bound = bool(learn_radius), bool(learn_bound)
        self.backbone = ResNet(depth, 10 * space.dim, stem=stem, seed=generator)
        self.scaffold = (
            Scaffold(10 * space.dim, scaffold, fade=fading(scaffold_until), seed=generator) if scaffold else None
        )
        self.last = make_linear(10 * space.dim, space.dim, generator)
        self.head = make_head(space, learn_radius=self.learn_radius, learn_bound=self.learn_bound)
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("deviation", torch.ones(3))
        self.register_buffer("fitted", torch.tensor(False))

    def forward(self, images: Tensor) -> Tensor:
        """The codes of ``images: (n, 3, H, W)``: ``(n, space.dim)``, in training followed by those of a scaffold."""
        _check_images(images)
        if self.training or torch.is_grad_enabled() or len(images) <= CHUNK:
            return self._encode(images)
        return torch.cat([self._encode(part) for part in images.split(CHUNK)])

    def _encode(self, images: Tensor) -> Tensor:
        features = functional.leaky_relu(self.backbone(self._normalised(images)), self.negative_slope)
        codes = self.head(self.last(features))
        if self.scaffold is None or not self.training:
            return codes
        return torch.cat([codes, self.scaffold(features)], dim=-1)

    def _normalised(self, images: Tensor) -> Tensor:
        """(image − mean) / deviation with grey values in [0, 1], in the precision of the convolutions."""
        kind = images.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else self.mean.dtype
        scale = 1 / self.deviation / (1 if images.is_floating_point() else 255)
        shift = -self.mean / self.deviation
        # Channels last, in words that also hold where the step is mapped over seeds.
        x = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2).to(dtype)
        return torch.addcmul(shift.to(dtype)[:, None, None], x, scale.to(dtype)[:, None, None])

    def turn(self, rotation: Tensor) -> None:
        """Turn all codes, as :meth:`identica.encoders.base.Encoder.turn` does."""
        turn_layers([self.last], rotation, self.space)

    def stretch(self, matrix: Tensor) -> None:
        """Map all codes on a sphere, as :meth:`identica.encoders.base.Encoder.stretch` does."""
        stretch_layers([self.last], matrix, self.space)

    # -- the normalisation

    @torch.no_grad()
    def prepare(self, images: Tensor) -> None:
        """Take mean and deviation of each colour from a sample, once: a second call changes nothing."""
        _check_images(images)
        if bool(self.fitted):
            return
        mean, deviation = colour_statistics(images)
        # A colour that never varies, as in a black sample, is only centred.
        self.normalise_with(mean, [value if value > 1e-6 else 1.0 for value in deviation])

    @torch.no_grad()
    def normalise_with(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        """Fix the mean and the deviation of red, green and blue, for grey values in [0, 1]."""
        if len(mean) != 3 or len(deviation) != 3 or not all(value > 0 for value in deviation):
            raise ValueError(
                "normalise_with takes three means and three positive deviations, one for each of red, green and blue, "
                f"not {list(mean)} and {list(deviation)}."
            )
        self.mean.copy_(torch.tensor(list(mean)))
        self.deviation.copy_(torch.tensor(list(deviation)))
        self.fitted.fill_(True)

    # -- as plain data

    def to_dict(self) -> dict[str, Any]:
        """``{"encoder": "resnet", ...}``; the weights and the normalisation are in ``state_dict``."""
        if type(self) is not ResNetEncoder:
            return {"class": type(self).__qualname__}
        settings = {
            "encoder": "resnet",
            "space": self.space.to_dict(),
            "depth": self.backbone.depth,
            "stem": self.backbone.stem,
            "negative_slope": self.negative_slope,
            "learn_radius": self.learn_radius,
            "learn_bound": self.learn_bound,
        }
        if self.scaffold is None:
            return settings
        until = self.scaffold.fade.until
        return {**settings, "scaffold": self.scaffold.count, **({} if until == FADED else {"scaffold_until": until})}


def colour_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of ``images: (n, C, H, W)``, with grey values in [0, 1].

    >>> colour_statistics(torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1))
    ((0.5,), (0.5,))
    """
    total = squares = torch.zeros(images.shape[1], dtype=torch.float64, device=images.device)
    for part in images.split(CHUNK):
        values = part.to(torch.float64) / (1 if images.is_floating_point() else 255)
        total, squares = total + values.sum(dim=(0, 2, 3)), squares + values.square().sum(dim=(0, 2, 3))
    pixels = images.numel() // images.shape[1]
    mean = total / pixels
    deviation = (squares / pixels - mean.square()).clamp(min=0).sqrt()
    return tuple(mean.tolist()), tuple(deviation.tolist())


def _convolution(channels: int, width: int, size: int, stride: int, generator: torch.Generator) -> nn.Conv2d:
    """A convolution without bias, padded by half its size; weights N(0, 2 / (width · size²)), from ``generator``."""
    settings: dict[str, Any] = {"stride": stride, "padding": size // 2, "bias": False, "device": "cpu"}
    layer = torch.nn.utils.skip_init(nn.Conv2d, channels, width, size, **settings)
    assert isinstance(layer, nn.Conv2d)
    with torch.no_grad():
        drawn = torch.randn(layer.weight.shape, generator=generator, device=generator.device)
        layer.weight.copy_(drawn * (2.0 / (width * size**2)) ** 0.5)
    return layer


def _shortcut(channels: int, wide: int, stride: int, generator: torch.Generator) -> nn.Sequential | None:
    """What brings the input of a block to the shape of its output, where they differ."""
    if stride == 1 and channels == wide:
        return None
    return nn.Sequential(_convolution(channels, wide, 1, stride, generator), nn.BatchNorm2d(wide))


def _check_images(images: Tensor) -> None:
    if images.ndim != 4 or images.shape[1] != 3 or not (images.dtype == torch.uint8 or images.is_floating_point()):
        raise ValueError(
            "A ResNet takes images (n, 3, height, width), bytes or floating-point numbers in [0, 1], not "
            f"{images.dtype} of shape {tuple(images.shape)}."
        )


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
