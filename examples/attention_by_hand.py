"""Examples of attention with numbers small enough to check by hand.

``python -m examples.attention_by_hand`` prints::

    A. Three inputs of width 4
    queries 1          0          2
            2          2          2
            2          1          3
    keys    0          1          1
            4          4          0
            2          3          1
    values  1          2          3
            2          8          0
            2          6          3
    unscaled, q . k
    scores  2          4          4
            4          16         12
            4          12         10
    weights 0.063379   0.46831    0.46831
            6.0337e-06 0.98201    0.017986
            0.00029539 0.88054    0.11917
    outputs 1.9366     6.6831     1.5951
            2          7.964      0.053976
            1.9997     7.7599     0.35839
    rounded 0          0.5        0.5
            0          1          0
            0          0.9        0.1
    outputs 2          7          1.5
            2          8          0
            2          7.8        0.3
    scaled, q . k / sqrt(3)
    scores  1.1547     2.3094     2.3094
            2.3094     9.2376     6.9282
            2.3094     6.9282     5.7735
    weights 0.13613    0.43194    0.43194
            0.00089045 0.90884    0.090267
            0.0074449  0.75471    0.23785
    outputs 1.8639     6.3194     1.7042
            1.9991     7.8141     0.27347
            1.9926     7.4796     0.73588
    B. A picture of 8 x 8 pixels as four tokens
    counts  4          4          4          4
            4          6          4          6
            4          4          4          4
            4          6          4          6
    scores  1          1          1          1
            1          1.5        1          1.5
            1          1          1          1
            1          1.5        1          1.5
    weights 0.25       0.25       0.25       0.25
            0.18877    0.31123    0.18877    0.31123
            0.25       0.25       0.25       0.25
            0.18877    0.31123    0.18877    0.31123
    outputs, as pictures of 4 x 4
    of 1, 3 0          0          0          0
            0.5        1          1          0.5
            0          0          0          0
            0          1          1          0
    of 2, 4 0          0          0          0
            0.62246    1          1          0.62246
            0          0          0          0
            0          1          1          0
    C. The context vector of a decoder
    scores  2          0          2
    weights 0.46831    0.063379   0.46831
    context 0.93662    0.53169
    next state (2, 6), weights of padding [0.0, 0.0]
    D. Two heads, width 16, over (32, 20, 10)
    outputs (32, 20, 16), weights (32, 2, 20, 20)
"""

from __future__ import annotations

import torch
import tyro
from torch import Tensor, nn

from hitmac.perception import MultiHeadAttention, attend
from hitmac.perception.functional import Additive, Dot, ScaledDot


def show(name: str, x: Tensor) -> None:
    """Print a matrix with five digits of every number."""
    for row in x.tolist():
        print(f"{name:<8}" + " ".join(f"{number:<10.5g}" for number in row).rstrip())
        name = ""


def three_inputs() -> None:
    """Print self-attention over three inputs, unscaled and scaled."""
    x = torch.tensor([[1.0, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]])
    to_query = torch.tensor([[1.0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]])
    to_key = torch.tensor([[0.0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]])
    to_value = torch.tensor([[0.0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]])
    query, key, value = x @ to_query, x @ to_key, x @ to_value

    print("A. Three inputs of width 4")
    show("queries", query)
    show("keys", key)
    show("values", value)
    for title, score in (("unscaled, q . k", Dot()), ("scaled, q . k / sqrt(3)", ScaledDot())):
        print(title)
        outputs, weights = attend(query, key, value, score=score, need_weights=True)
        show("scores", score(query, key))
        show("weights", weights)
        show("outputs", outputs)
        if title.startswith("unscaled"):
            by_hand = torch.tensor([[0.0, 0.5, 0.5], [0, 1, 0], [0, 0.9, 0.1]])
            show("rounded", by_hand)  # weights rounded for a calculation by hand
            show("outputs", by_hand @ value)


def picture() -> None:
    """Print self-attention over a picture of 8 x 8 pixels, cut into four tokens of 4 x 4."""
    # The upper and lower halves are equal, so the first token equals the third, and the second the fourth.
    rows = ["00000000", "01101111", "00000000", "01100110"] * 2
    pixels = torch.tensor([[float(pixel) for pixel in row] for row in rows])  # (8, 8)
    tokens = pixels.unfold(0, 4, 4).unfold(1, 4, 4).reshape(4, 16)
    outputs, weights = attend(tokens, tokens, tokens, score=ScaledDot(), need_weights=True)

    print("B. A picture of 8 x 8 pixels as four tokens")
    show("counts", Dot()(tokens, tokens))  # number of ones that two tokens share
    show("scores", ScaledDot()(tokens, tokens))  # divided by sqrt(16)
    show("weights", weights)
    print("outputs, as pictures of 4 x 4")
    show("of 1, 3", outputs[0].reshape(4, 4))
    show("of 2, 4", outputs[1].reshape(4, 4))


class Decoder(nn.Module):
    """Step of a recurrent decoder that attends to the states of an encoder (Bahdanau, Cho, Bengio, ICLR 2015).

    ``c = sum over j of softmax_j(w . tanh(W_q s + W_k h_j)) h_j``, ``s' = GRU([word; c], s)``.
    """

    def __init__(self, word_dim: int, state_dim: int, memory_dim: int) -> None:
        super().__init__()
        self.score = Additive(state_dim, memory_dim)
        self.cell = nn.GRUCell(word_dim + memory_dim, state_dim)

    def forward(self, word: Tensor, state: Tensor, memory: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next state (B, state_dim) and the weights (B, S).

        Args:
            word: (B, word_dim).
            state: (B, state_dim).
            memory: (B, S, memory_dim), the states of the encoder.
            there: (B, S) bool, True for valid states of the encoder.
        """
        context, weights = attend(
            state.unsqueeze(1), memory, memory, score=self.score, mask=there.unsqueeze(1), need_weights=True
        )  # (B, 1, memory_dim), (B, 1, S)
        assert weights is not None
        return self.cell(torch.cat((word, context.squeeze(1)), -1), state), weights.squeeze(1)


def context_vector() -> None:
    """Print cross-attention: the query is a decoder's state, the keys and values are an encoder's states."""
    state = torch.tensor([[2.0, 0.0]])  # state of the decoder
    memory = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])  # states of the encoder, one for each word
    context, weights = attend(state, memory, memory, score=Dot(), need_weights=True)

    print("C. The context vector of a decoder")
    show("scores", Dot()(state, memory))
    show("weights", weights)
    show("context", context)
    there = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])  # the second sentence has three words
    following, weights = Decoder(7, 6, 8)(torch.randn(2, 7), torch.randn(2, 6), torch.randn(2, 5, 8), there)
    print(f"next state {tuple(following.shape)}, weights of padding {weights[1, 3:].tolist()}")


def shapes() -> None:
    """Print the shapes of multi-head attention whose inputs differ in width from its own."""
    attention = MultiHeadAttention(16, 2, query_dim=10, key_dim=10, value_dim=10)
    outputs, weights = attention(torch.randn(32, 20, 10), need_weights=True)
    print("D. Two heads, width 16, over (32, 20, 10)")
    print(f"outputs {tuple(outputs.shape)}, weights {tuple(weights.shape)}")


def main() -> None:
    """Print all examples."""
    three_inputs()
    picture()
    context_vector()
    shapes()


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
