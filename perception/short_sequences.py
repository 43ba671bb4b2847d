"""Attention within many short sequences on a CPU, in float32, compiled by numba.

A sequence g has the rows ``rows[g]`` of the tokens, those where ``mask[g]`` is True; a mask without elements is True
everywhere. Within sequences such as the 5 targets of a sensor, products of matrices take PyTorch as long as those of
the projections, and its tanh too. A gradient step of the default policies takes three quarters of the time.
"""

from contextlib import suppress
from typing import Any

import numpy as np
from numba import njit


def _kernel(function: Any) -> Any:
    # Sums may be reordered, but NaN and infinity remain what they are.
    kernel = njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})(function)
    with suppress(RuntimeError):  # no folder for it can be written
        kernel.enable_caching()
    return kernel


@_kernel
def to_tanh(x: np.ndarray, bias: np.ndarray) -> None:
    """Change float32 x (T, f) to ``tanh(x + bias)``; relative error below 4e-7.

    A quotient of polynomials in x^2, fitted for the smallest relative error (6e-9 before rounding) up to 7.9, and 1
    from there on, exactly, so that the gradient 1 - y^2 is 0.
    """
    end, one = np.float32(7.9), np.float32(1.0)
    for row in range(x.shape[0]):
        numbers = x[row]
        for i in range(numbers.size):
            u = numbers[i] + bias[i]
            s = u * u
            above = np.float32(1.54281374e-08) * s + np.float32(2.20233603e-05)
            above = (above * s + np.float32(0.00357899891)) * s + np.float32(0.134506263)
            below = np.float32(8.59884631e-07) * s + np.float32(0.000342366189)
            below = (below * s + np.float32(0.0261922641)) * s + np.float32(0.467839543)
            y = u * (above * s + np.float32(0.999999994)) / (below * s + one)
            y = one if u > end else y
            numbers[i] = -one if u < -end else y


@_kernel
def _valid(rows: np.ndarray, mask: np.ndarray, g: int, found: np.ndarray) -> int:
    """Write the rows of the valid tokens of sequence g; return their number."""
    number = 0
    for place in range(rows.shape[1]):
        if mask.size == 0 or mask[g, place]:
            found[number] = rows[g, place]
            number += 1
    return number


@_kernel
def attend(
    p: np.ndarray, rows: np.ndarray, mask: np.ndarray, scale: float, weights: np.ndarray, out: np.ndarray
) -> None:
    """Write ``softmax(scale q k^T) v`` to the rows of `out` (T, f), given p = [q k v] (T, 3 f).

    The weights (G, h, L, L) of each of h heads begin with those of the valid tokens.
    """
    f, heads = out.shape[1], weights.shape[1]
    own = np.empty(rows.shape[1], np.int64)
    for g in range(rows.shape[0]):
        length = _valid(rows, mask, g, own)
        for h in range(heads):
            first, end = h * f // heads, (h + 1) * f // heads
            for i in range(length):
                query, z, given = p[own[i], first:end], out[own[i], first:end], weights[g, h, i]
                highest, total = np.float32(-np.inf), np.float32(0.0)
                for j in range(length):
                    key = p[own[j], f + first : f + end]
                    score = np.float32(0.0)
                    for c in range(key.size):
                        score += query[c] * key[c]
                    given[j] = score * scale
                    highest = given[j] if given[j] > highest else highest
                for j in range(length):
                    given[j] = np.exp(given[j] - highest)
                    total += given[j]
                z[:] = np.float32(0.0)
                for j in range(length):
                    given[j] /= total
                    value = p[own[j], 2 * f + first : 2 * f + end]
                    for c in range(value.size):
                        z[c] += given[j] * value[c]


@_kernel
def differentiate(
    p: np.ndarray, rows: np.ndarray, mask: np.ndarray, scale: float, weights: np.ndarray, dz: np.ndarray, du: np.ndarray
) -> None:
    """Write to the rows of du (T, 3 f) the gradient by what tanh was taken of, given dz (T, f) and the rest as above.

    With the weights w: ``dv_j = sum_i w_ij dz_i``, ``ds_ij = w_ij (dz_i . v_j - sum_l w_il dz_i . v_l)``,
    ``dq_i = scale sum_j ds_ij k_j``, ``dk_j = scale sum_i ds_ij q_i``, and ``du = (1 - p^2) dp``.
    """
    f, heads = dz.shape[1], weights.shape[1]
    own, through = np.empty(rows.shape[1], np.int64), np.empty(rows.shape[1], np.float32)
    for g in range(rows.shape[0]):
        length = _valid(rows, mask, g, own)
        for i in range(length):
            du[own[i]] = np.float32(0.0)
        for h in range(heads):
            first, end = h * f // heads, (h + 1) * f // heads
            for i in range(length):
                gradient, given = dz[own[i], first:end], weights[g, h, i]
                query, dq = p[own[i], first:end], du[own[i], first:end]
                mean = np.float32(0.0)
                for j in range(length):
                    value = p[own[j], 2 * f + first : 2 * f + end]
                    product = np.float32(0.0)
                    for c in range(value.size):
                        product += gradient[c] * value[c]
                    through[j] = product
                    mean += given[j] * product
                for j in range(length):
                    ds = given[j] * (through[j] - mean) * scale
                    key, dk = p[own[j], f + first : f + end], du[own[j], f + first : f + end]
                    dv = du[own[j], 2 * f + first : 2 * f + end]
                    for c in range(dq.size):
                        dq[c] += ds * key[c]
                        dk[c] += ds * query[c]
                        dv[c] += given[j] * gradient[c]
        for i in range(length):
            gradients, numbers = du[own[i]], p[own[i]]
            for c in range(gradients.size):
                gradients[c] *= np.float32(1.0) - numbers[c] * numbers[c]
