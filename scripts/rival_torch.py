#!/usr/bin/env python3
"""The rival: the same trainings in PyTorch, from the same data, initial weights and batch order.

scripts/benchmark rival starts it, with the interpreter of --torch-python; it needs torch and numpy.

loop      torch.nn modules and torch.optim.Adam, run after run
compile   the same, the module compiled by torch.compile
batched   all runs as one: stacked weights, batched products, Adam with a rate for each run
func      the same, by torch.func.vmap over torch.func.grad
"""

from __future__ import annotations

import argparse
import copy
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

GATES = ("r", "z", "n")
BETAS, EPSILON = (0.9, 0.999), 1e-8


# Run after run: what a PyTorch user would write ---------------------------------------------------


class GRU(nn.Module):
    """One GRU layer and a linear head; of the recurrent biases only the candidate's is trained."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        hidden = len(weights["GRUCell_0/hn/bias"])
        features = len(weights["GRUCell_0/ir/kernel"])
        self.gru = nn.GRU(features, hidden, batch_first=True)
        self.head = nn.Linear(hidden, len(weights["Dense_0/bias"]))
        cell = {name.removeprefix("GRUCell_0/"): value for name, value in weights.items()}
        none = torch.zeros(hidden)
        with torch.no_grad():
            for side, target in (("i", self.gru.weight_ih_l0), ("h", self.gru.weight_hh_l0)):
                target.copy_(torch.cat([cell[f"{side}{gate}/kernel"].T for gate in GATES]))
            self.gru.bias_ih_l0.copy_(torch.cat([cell[f"i{gate}/bias"] for gate in GATES]))
            self.gru.bias_hh_l0.copy_(torch.cat([none, none, cell["hn/bias"]]))
            self.head.weight.copy_(weights["Dense_0/kernel"].T)
            self.head.bias.copy_(weights["Dense_0/bias"])
        trained = torch.cat([none, none, torch.ones(hidden)])
        self.gru.bias_hh_l0.register_hook(lambda gradient: gradient * trained)

    def forward(self, inputs: Tensor) -> Tensor:
        """Give the outputs [batch, time, outputs]."""
        return self.head(self.gru(inputs)[0])


class MLP(nn.Sequential):
    """Rectified layers and a linear head."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        layers: list[nn.Module] = []
        for place in range(len(weights) // 2):
            kernel, bias = weights[f"Dense_{place}/kernel"], weights[f"Dense_{place}/bias"]
            layer = nn.Linear(*kernel.shape)
            with torch.no_grad():
                layer.weight.copy_(kernel.T)
                layer.bias.copy_(bias)
            layers += [layer, nn.ReLU()]
        super().__init__(*layers[:-1])


class Ring(nn.Module):
    """Nodes on a ring that pass messages to their neighbours."""

    def __init__(self, weights: dict[str, Tensor], sweeps: int, eta: float) -> None:
        super().__init__()
        for name, value in weights.items():
            self.register_parameter(name.replace("/", "_"), nn.Parameter(value.clone()))
        self.sweeps, self.eta = sweeps, eta

    def forward(self, inputs: Tensor) -> Tensor:
        """Give the outputs [batch, time, outputs]."""
        nodes, width = self.cell_bias.shape
        hidden = inputs.new_zeros(len(inputs), nodes, width)
        states = []
        for now in inputs.unbind(1):
            driven = (now @ self.cell_input)[:, None] + self.cell_bias
            for _ in range(self.sweeps):
                sides = [hidden, torch.roll(hidden, 1, 1), torch.roll(hidden, -1, 1)]
                new = torch.tanh(torch.cat(sides, -1) @ self.cell_hidden + driven)
                hidden = hidden + self.eta * (new - hidden)
            states.append(hidden.flatten(1))
        return torch.stack(states, 1) @ self.head_kernel + self.head_bias


def module_of(workload: str, weights: dict[str, Tensor], options: dict[str, Any]) -> nn.Module:
    """Build a workload's module from initial weights."""
    if workload == "gru":
        return GRU(weights)
    return MLP(weights) if workload == "mlp" else Ring(weights, options["sweeps"], options["eta"])


def train_loop(data: Data, compiled: bool) -> list[float]:
    """Train run after run; give each one's test loss."""
    losses = []
    for rate, seed in data.runs:
        part = data.seeds[seed]
        module = module_of(data.workload, part.weights, data.options)
        call = torch.compile(module) if compiled else module
        optimizer = torch.optim.Adam(module.parameters(), lr=rate, betas=BETAS, eps=EPSILON)
        for order in part.order:
            for rows in order:
                optimizer.zero_grad(set_to_none=True)
                loss = nn.functional.mse_loss(call(part.inputs[rows]), part.targets[rows])
                loss.backward()
                optimizer.step()
        with torch.no_grad():
            losses.append(nn.functional.mse_loss(module(part.test[0]), part.test[1]).item())
    return losses


# All runs as one ----------------------------------------------------------------------------------

Weights = dict[str, Tensor]


def affine(inputs: Tensor, weights: Weights, name: str) -> Tensor:
    """The affine map `name` of inputs [..., batch, features]."""
    return inputs @ weights[f"{name}/kernel"] + weights[f"{name}/bias"].unsqueeze(-2)


def gru_forward(weights: Weights, inputs: Tensor, options: dict[str, Any]) -> Tensor:
    """A GRU over inputs [..., batch, time, features], the gates in one product."""
    cell = {name.removeprefix("GRUCell_0/"): value for name, value in weights.items()}
    from_input = torch.cat([cell[f"i{gate}/kernel"] for gate in GATES], -1)
    input_bias = torch.cat([cell[f"i{gate}/bias"] for gate in GATES], -1).unsqueeze(-2)
    recurrent = torch.cat([cell[f"h{gate}/kernel"] for gate in GATES], -1)
    bias = cell["hn/bias"].unsqueeze(-2)
    hidden = inputs.new_zeros(*inputs.shape[:-2], recurrent.shape[-2])
    states = []
    for now in inputs.unbind(-2):
        r, z, n = (now @ from_input + input_bias).chunk(3, -1)
        to_r, to_z, to_n = (hidden @ recurrent).chunk(3, -1)
        update = torch.sigmoid(z + to_z)
        candidate = torch.tanh(n + torch.sigmoid(r + to_r) * (to_n + bias))
        hidden = (1 - update) * candidate + update * hidden
        states.append(hidden)
    flat = torch.stack(states, -2).flatten(-3, -2)
    outputs = affine(flat, weights, "Dense_0")
    return outputs.unflatten(-2, inputs.shape[-3:-1])


def mlp_forward(weights: Weights, inputs: Tensor, options: dict[str, Any]) -> Tensor:
    """A perceptron over inputs [..., batch, features]."""
    depth = len(weights) // 2
    for place in range(depth - 1):
        inputs = torch.relu(affine(inputs, weights, f"Dense_{place}"))
    return affine(inputs, weights, f"Dense_{depth - 1}")


def ring_forward(weights: Weights, inputs: Tensor, options: dict[str, Any]) -> Tensor:
    """A ring of nodes over inputs [..., batch, time, features]."""
    bias, kernel = weights["cell/bias"], weights["cell/hidden"]
    nodes, width = bias.shape[-2:]
    hidden = inputs.new_zeros(*inputs.shape[:-2], nodes, width)
    states = []
    for now in inputs.unbind(-2):
        driven = (now @ weights["cell/input"]).unsqueeze(-2) + bias.unsqueeze(-3)
        for _ in range(options["sweeps"]):
            sides = [hidden, torch.roll(hidden, 1, -2), torch.roll(hidden, -1, -2)]
            seen = torch.cat(sides, -1).flatten(-3, -2) @ kernel
            new = torch.tanh(seen.unflatten(-2, hidden.shape[-3:-1]) + driven)
            hidden = hidden + options["eta"] * (new - hidden)
        states.append(hidden.flatten(-2))
    flat = torch.stack(states, -2).flatten(-3, -2)
    return affine(flat, weights, "head").unflatten(-2, inputs.shape[-3:-1])


FORWARD: dict[str, Callable[[Weights, Tensor, dict[str, Any]], Tensor]] = {
    "gru": gru_forward,
    "mlp": mlp_forward,
    "ring": ring_forward,
}


def train_together(data: Data, by_func: bool) -> list[float]:
    """Train all runs as one, and give each one's test loss."""
    parts = [data.seeds[seed] for _, seed in data.runs]
    forward = FORWARD[data.workload]
    names = list(parts[0].weights)
    weights = {name: torch.stack([part.weights[name] for part in parts]) for name in names}
    inputs, targets = (torch.stack([getattr(p, n) for p in parts]) for n in ("inputs", "targets"))
    orders = torch.stack([part.order for part in parts])
    rates = torch.tensor([rate for rate, _ in data.runs])
    runs = torch.arange(len(parts))[:, None]

    def one_loss(weights: Weights, inputs: Tensor, targets: Tensor) -> Tensor:
        return ((forward(weights, inputs, data.options) - targets) ** 2).mean()

    every_gradient = torch.func.vmap(torch.func.grad(one_loss))

    def gradients(inputs: Tensor, targets: Tensor) -> Weights:
        if by_func:
            return every_gradient(weights, inputs, targets)
        leaves = {name: value.requires_grad_() for name, value in weights.items()}
        errors = (forward(leaves, inputs, data.options) - targets) ** 2
        total = errors.flatten(1).mean(1).sum()
        return dict(zip(names, torch.autograd.grad(total, list(leaves.values())), strict=True))

    first = {name: torch.zeros_like(value) for name, value in weights.items()}
    second = {name: torch.zeros_like(value) for name, value in weights.items()}
    step = 0
    for epoch in range(orders.shape[1]):
        for place in range(orders.shape[2]):
            step += 1
            rows = orders[:, epoch, place]
            found = gradients(inputs[runs, rows], targets[runs, rows])
            with torch.no_grad():
                for name, gradient in found.items():
                    value = weights[name]
                    first[name].lerp_(gradient, 1 - BETAS[0])
                    second[name].mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
                    rate = rates.view(-1, *[1] * (value.dim() - 1)) / (1 - BETAS[0] ** step)
                    scale = (second[name] / (1 - BETAS[1] ** step)).sqrt_().add_(EPSILON)
                    value.sub_(rate * first[name] / scale)
    with torch.no_grad():
        tests = [torch.stack([part.test[side] for part in parts]) for side in (0, 1)]
        errors = (forward(weights, tests[0], data.options) - tests[1]) ** 2
        return errors.flatten(1).mean(1).tolist()


# Data, and what is printed ------------------------------------------------------------------------


class Seed:
    """A seed's data, initial weights and batch order [epochs, steps, batch]."""

    def __init__(self, arrays: Any, seed: int) -> None:
        def read(name: str) -> Tensor:
            return torch.from_numpy(np.array(arrays[f"{seed}:{name}"]))

        start = f"{seed}:weights:"
        names = [name.removeprefix(start) for name in arrays.files if name.startswith(start)]
        self.weights = {name: read(f"weights:{name}") for name in names}
        self.inputs, self.targets = read("inputs"), read("targets")
        self.test = read("test_inputs"), read("test_targets")
        self.order = read("order").long()


class Data:
    """What is to be trained."""

    def __init__(self, path: str, part: int, parts: int) -> None:
        with np.load(path) as arrays:
            described = json.loads(str(arrays["described"]))
            self.workload, self.options = described["workload"], described["options"]
            self.runs = [tuple(run) for run in described["runs"]][part::parts]
            self.seeds = {seed: Seed(arrays, seed) for seed in {seed for _, seed in self.runs}}

    def first(self, runs: int | None, epochs: int | None, steps: int | None = None) -> Data:
        """The first runs, epochs, and steps of each; of one step, what torch defers is loaded."""
        brief = copy.copy(self)
        brief.runs = self.runs[:runs]
        brief.seeds = {number: copy.copy(seed) for number, seed in self.seeds.items()}
        for seed in brief.seeds.values():
            seed.order = seed.order[:epochs, :steps]
        return brief


def train(data: Data, how: str) -> list[float]:
    """Train in one of the ways; give each run's test loss."""
    if how in ("loop", "compile"):
        return train_loop(data, how == "compile")
    return train_together(data, how == "func")


def main() -> None:
    """Train, and print what it took as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("how", choices=["loop", "compile", "batched", "func"])
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--epochs", type=int, help="Not all of them.")
    parser.add_argument("--runs", type=int, help="Not all of them.")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    data = Data(given.data, given.part, given.parts).first(given.runs, given.epochs)
    began = time.perf_counter()
    train(data.first(None, 1, steps=1), given.how)
    ready, used = time.perf_counter(), time.process_time()
    losses = train(data, given.how)
    print(
        json.dumps(
            {
                "warm_up_seconds": ready - began,
                "train_seconds": time.perf_counter() - ready,
                "cpu_seconds": time.process_time() - used,
                "losses": losses,
                "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "cores": given.threads,
            }
        )
    )


if __name__ == "__main__":
    main()
