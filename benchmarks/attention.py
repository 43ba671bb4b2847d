"""Benchmarks of attention and the AMC critic, each with its baselines in the same run."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from hitmac.perception import AMCCritic, AttentionLayer

WIDTH = 128

Form = Callable[[Tensor], tuple[Tensor, ...]]


def milliseconds(calls: Mapping[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Return the least time of each call, ms; the calls alternate, so that other load affects all of them."""
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            least[name] = min(least[name], 1e3 * (time.perf_counter() - began))
    return least


def written_out(layer: AttentionLayer, x: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the paper's layer in three lines."""
    query, key, value = torch.tanh(layer.Q(x)), torch.tanh(layer.K(x)), torch.tanh(layer.V(x))
    z = torch.bmm(torch.softmax(torch.bmm(query, key.transpose(1, 2)), -1), value)
    return z, z.sum(1)


def forms() -> dict[str, Form]:
    """Return the compared forms by name, with shared parameters where they have the same."""
    torch.manual_seed(0)
    layer, multi_head = AttentionLayer(WIDTH, WIDTH), nn.MultiheadAttention(WIDTH, 1, batch_first=True)

    def theirs(x: Tensor) -> tuple[Tensor, Tensor]:
        z, _ = multi_head(x, x, x, need_weights=False)
        return z, z.sum(1)

    return {
        "AttentionLayer": layer,
        "written out": lambda x: written_out(layer, x),
        "nn.MultiheadAttention": theirs,
    }


def trained(
    form: Callable[[Tensor], tuple[Tensor, ...]], x: Tensor, gradients: tuple[Tensor, ...]
) -> Callable[[], None]:
    """Return a function that makes one forward and backward pass."""

    def call() -> None:
        outputs = form(x.clone().requires_grad_())
        torch.autograd.backward(outputs, gradients[-len(outputs) :])

    return call


def used(form: Callable[[Tensor], object], x: Tensor) -> Callable[[], None]:
    """Return a function that makes twenty forward passes without gradients."""

    def call() -> None:
        with torch.no_grad():
            for _ in range(20):
                form(x)

    return call


def compare(title: str, found: dict[str, float], base: str, passes: int = 1) -> None:
    """Print a line with every time and its ratio to the base."""
    shown = [f"{name} {value / passes:.3f} ms ({value / found[base]:.2f})" for name, value in found.items()]
    print(f"  {title}: {', '.join(shown)}")


def attention() -> None:
    torch.set_num_threads(2)
    print(f"\nattention, width {WIDTH}, 2 threads, least of several alternating runs (ratio to the written-out form)")
    for batch, length, repeats in ((4096, 5, 10), (1024, 20, 10), (1, 3000, 5)):
        x = torch.randn(batch, length, WIDTH)
        gradients = (torch.randn(batch, length, WIDTH), torch.randn(batch, WIDTH))
        calls = {name: trained(form, x, gradients) for name, form in forms().items()}
        compare(f"forward and backward, {batch} x {length}", milliseconds(calls, repeats), "written out")
    x = torch.randn(64, 20, WIDTH)
    calls = {name: used(form, x) for name, form in forms().items() if name != "nn.MultiheadAttention"}
    compare("no gradient, 64 x 20", milliseconds(calls, 100), "written out", 20)
    print("  time, and peak memory above that of 20 pairs, forward and backward, one scene:")
    print("  3000 pairs: " + ", ".join(peak(name, 3000) for name in ("AttentionLayer", "written out")))


def peak(name: str, length: int) -> str:
    """Measure time and memory of one form at one length, forward and backward, in a separate process.

    The 100 MB of the libraries that compile kernels, loaded once from 512 tokens on, do not count.
    """
    code = (
        "import re, time, torch; from pathlib import Path; from benchmarks.attention import *\n"
        "torch.set_num_threads(2)\n"
        f"form = forms()[{name!r}]\n"
        "def run(length):\n"
        "    x = torch.randn(1, length, WIDTH, requires_grad=True)\n"
        "    began = time.perf_counter(); outputs = form(x)\n"
        "    torch.autograd.backward(outputs, [torch.randn_like(one) for one in outputs])\n"
        "    return time.perf_counter() - began\n"
        "def memory(what):\n"
        "    return int(re.search(what + r':\\s+(\\d+)', Path('/proc/self/status').read_text())[1]) / 1024\n"
        "run(20); run(512); run(20); before = memory('VmRSS')\n"
        "Path('/proc/self/clear_refs').write_text('5')\n"  # reset the peak
        f"seconds = min(run({length}) for _ in range(3))\n"
        "print(1e3 * seconds, memory('VmHWM') - before)"
    )
    root = Path(__file__).parents[1]
    ended = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    time_taken, memory = map(float, ended.stdout.split())
    return f"{name} {time_taken:.1f} ms, {memory:.0f} MB"


def loop(critic: AMCCritic, z: Tensor) -> Tensor:
    """Compute the critic as in the paper, with one call of the attention for every prefix."""
    assert critic.attention is not None
    value = torch.zeros(len(z))
    for j in range(z.shape[1]):
        before = written_out(critic.attention, z[:, :j])[1] if j else z.new_zeros(len(z), critic.weight_dim)
        value = value + critic.linear(torch.cat((before, z[:, j]), -1)).squeeze(-1)
    return value


def critic() -> None:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    made = AMCCritic(WIDTH)

    def run(form: Callable[[Tensor], Tensor], z: Tensor) -> Callable[[], None]:
        return lambda: form(z.clone().requires_grad_()).sum().backward()

    print(f"\nAMC critic, width {WIDTH}, 2 threads, forward and backward, ms per scene; least of several runs")
    z, one = torch.randn(64, 20, WIDTH), torch.randn(1, 20, WIDTH)
    found = milliseconds(
        {
            "one pass, 64 scenes": run(made, z),
            "loop, 64 scenes": run(lambda x: loop(made, x), z),
            "one pass, a scene": run(made, one),
            "loop, a scene": run(lambda x: loop(made, x), one),
        },
        5,
    )
    each = {name: value / (64 if "64" in name else 1) for name, value in found.items()}
    print("  20 pairs: " + ", ".join(f"{name} {value:.3f}" for name, value in each.items()))
    whole = each["one pass, 64 scenes"]
    print(f"  the paper's loop, scene by scene / one pass over a batch: {each['loop, a scene'] / whole:.0f}")
    print(f"  the loop over the prefixes of a batch / one pass over a batch: {each['loop, 64 scenes'] / whole:.0f}")
