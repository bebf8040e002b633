"""A model whose every second layer is two CUDA graphs, forward and backward
(torch.cuda.make_graphed_callables). The other layers and the optimizer use no graphs.

In the first step and in every fourth, gradients are also computed without graphs, and must be the
same, bit by bit. A graph writes its gradients to the same memory each time, and that memory becomes
.grad. Gradients left there would be added to themselves, so they are set to None. That happens
before the forward pass: with torch's own allocator, graphs may keep data for their backward pass in
memory that other graphs left as gradients.

Prints one line of JSON (loop.py).
"""
import argparse
import sys

import loop


def make_layer(torch, width, inner):
    nn = torch.nn

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, inner * width), nn.Linear(inner * width, width)

        def forward(self, x):
            return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

    return Layer()


class Training:
    def __init__(self, torch, a, device):
        self.torch, self.a, self.device = torch, a, device
        with torch.device(device):
            layers = (make_layer(torch, a.width, 1 if number % 2 else 4) for number in range(a.layers))
            self.model = torch.nn.Sequential(*layers).bfloat16()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=device == "cuda")
        self.generator = torch.Generator(device=device).manual_seed(1)
        self.without_graphs = [layer.forward for layer in self.model]
        if device == "cuda":
            graphed = tuple(self.model[1::2])
            torch.cuda.make_graphed_callables(graphed, tuple((self.batch(),) for _ in graphed))  # replaces their forward()

    def batch(self):
        x = self.torch.randn(self.a.rows, self.a.width, device=self.device, generator=self.generator)
        return x.bfloat16().requires_grad_()

    def loss_of(self, layers, x):
        y = x
        for layer in layers:
            y = layer(y)
        return (y.float() - x.detach().float().roll(1, 0)).square().mean()

    def compare(self, number, expected):
        for (name, parameter), one in zip(self.model.named_parameters(), expected):
            if not self.torch.equal(parameter.grad, one):
                sys.exit(f"step {number}: the gradient of {name} is another one without graphs")

    def step(self, number):
        x, expected = self.batch(), None
        if number % 4 == 0:
            expected = self.torch.autograd.grad(self.loss_of(self.without_graphs, x), list(self.model.parameters()))
        self.optimizer.zero_grad()
        loss = self.loss_of(self.model, x)
        loss.backward()
        if expected:
            self.compare(number, expected)
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"layers": 10, "width": 4096, "rows": 8192, "steps": 20}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    a = parser.parse_args()
    torch = loop.prepare()
    training = Training(torch, a, "cuda" if torch.cuda.is_available() else "cpu")
    loop.tell(loop.run(torch, training.step, a.steps, training.model.parameters()))


if __name__ == "__main__":
    main()
