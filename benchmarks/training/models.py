"""What is trained: a ResNet-50 and a transformer of the size of GPT-2 small, on made-up data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

IMAGES, TOKENS, LENGTH = 64, 8, 512
"""The images of a batch; the sequences of one, and their length in tokens."""
VOCABULARY, WIDTH, DEPTH, HEADS = 50257, 768, 12, 12


def resnet(torch: Any) -> Callable[[], Any]:
    """Return a step that trains ResNet-50 and returns its loss."""
    from torchvision.models import resnet50

    model = resnet50(weights=None).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator("cuda").manual_seed(2)

    def step() -> Any:
        images = torch.randn(IMAGES, 3, 224, 224, device="cuda", generator=generator)
        labels = torch.randint(1000, (IMAGES,), device="cuda", generator=generator)
        return _update(optimizer, torch.nn.functional.cross_entropy(model(images), labels))

    return step


def gpt(torch: Any) -> Callable[[], Any]:
    """Return a step that trains the transformer and returns its loss. Batches differ in length, as texts do."""
    model = _transformer(torch).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    generator = torch.Generator("cuda").manual_seed(3)
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (1000,), generator=torch.Generator().manual_seed(4)).tolist()

    def step() -> Any:
        length = lengths.pop()
        tokens = torch.randint(VOCABULARY, (TOKENS, length + 1), device="cuda", generator=generator)
        with torch.autocast("cuda", torch.bfloat16):
            scores = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(scores.float().flatten(0, 1), tokens[:, 1:].flatten())
        return _update(optimizer, loss)

    return step


MODELS = {"ResNet-50": resnet, "GPT-2 small": gpt}


def _update(optimizer: Any, loss: Any) -> Any:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.detach()


def _transformer(torch: Any) -> Any:
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
            self.attention, self.mixing = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.network = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

        def forward(self, x: Any) -> Any:
            x = x + self.mixing(self.attend(self.norms[0](x)))
            return x + self.network(self.norms[1](x))

        def attend(self, x: Any) -> Any:
            """Attend by plain products, which are the same in each run, as faster kernels are not."""
            batch, length, _ = x.shape
            heads = self.attention(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            scores = heads[0] @ heads[1].transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
            later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            weights = scores.masked_fill(later, float("-inf")).softmax(-1)
            return (weights @ heads[2]).transpose(1, 2).reshape(batch, length, WIDTH)

    class Transformer(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
            self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(DEPTH))), nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
            self.head.weight = self.tokens.weight
            for embedding in (self.tokens, self.places):
                nn.init.normal_(embedding.weight, std=0.02)

        def forward(self, tokens: Any) -> Any:
            x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
            return self.head(self.norm(self.blocks(x)))

    return Transformer()
