"""The arithmetic of the codecs: from a vector to the very bytes on the wire, and back to what is left of it.

The bytes are a function of the vector, the codec and the seed, so both engines send the same ones (with
`deterministic_threads`, on one kind of machine). Encoding lies where the vector does, decoding where the body
does. A number that is not finite stays that, and spoils its block (int8, e3m0, 1-bit), but for ±∞ in fp16
and bf16.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from lockstep.workloads.layouts import BLOCK, OWN, SEED_BYTES, kept, layout, nbytes

__all__ = ["decode", "encode", "nbytes"]

Codec = tuple[str, float, float, int, int]  # name, ratio, threshold, rank, columns
_MOST = 127  # int8, symmetric: −128 is not used
_LEVELS = 7  # e3m0: powers of two, and 0
_BITS = torch.arange(8, dtype=torch.uint8)
_PAIRS = 2 * torch.arange(4, dtype=torch.uint8)


def encode(vector: Tensor, codec: Codec, seed: int = 0) -> Tensor:
    """The bytes on the wire, uint8 of shape (nbytes,), of a vector of shape (n,) of any floating type.

    Of none, fp16 and bf16, whose bodies can be summed: the vector itself, or a narrower one, of shape (n,).
    Of outer: two matrices end to end, of the vector's type.
    `seed`: 64 bits that random-k chooses elements by.
    """
    name, ratio, threshold, rank, columns = codec
    match name:
        case "none":
            return vector
        case "fp16":
            return _rounded(vector, torch.float16)
        case "bf16":
            return _rounded(vector, torch.bfloat16)
        case "int8":
            fields = _to_int8(vector)
        case "e3m0":
            fields = _to_powers(vector)
        case "2-bit":
            fields = [_to_signs(vector, threshold)]
        case "1-bit":
            fields = _to_bits(vector)
        case "top-k":
            places = _largest(vector, kept(ratio, len(vector)))
            fields = [places.to(torch.int32), vector[places]]
        case "outer":
            return _factored(vector.view(-1, columns), rank)
        case "random-k":
            sent = torch.tensor(list(seed.to_bytes(SEED_BYTES, "little")), dtype=torch.uint8)
            fields = [sent.to(vector.device), vector[_drawn(sent, kept(ratio, len(vector)), vector)]]
        case _:
            raise ValueError(f"unknown codec {name!r}")
    return torch.cat([field.contiguous().view(torch.uint8) for field in fields])


def decode(body: Tensor, codec: Codec, length: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """What is left of a vector of `length` elements of `dtype`: a new one of shape (length,).

    Raises RuntimeError if the body is not one of such a vector.
    """
    name, _, threshold, rank, columns = codec
    if name == "outer":
        basis, inside = torch.split(body, [length // columns * rank, rank * columns])
        return (basis.view(-1, rank) @ inside.view(rank, columns)).flatten()
    body = body.view(torch.uint8)
    kinds = [(count, dtype if kind == OWN else getattr(torch, kind)) for count, kind in layout(codec, length)]
    pieces = torch.split(body, [count * kind.itemsize for count, kind in kinds])
    # A view needs memory that is aligned for its type: a clone is.
    fields = [piece.clone().view(kind) for piece, (_, kind) in zip(pieces, kinds, strict=True)]
    match name:
        case "int8":
            scales, multiples = fields
            most = torch.finfo(scales.dtype).max  # 127 × a scale that was rounded up may be more
            vector = (_blocks(multiples) * scales[:, None]).clamp(-most, most).flatten()[:length]
        case "e3m0":
            scales, packed = fields
            vector = _from_powers(scales, packed, length)
        case "2-bit":
            vector = _from_signs(fields[0], threshold)[:length]
        case "1-bit":
            levels, packed = fields
            vector = _from_bits(levels, packed, length)
        case "top-k" | "random-k":
            vector = fields[1].new_zeros(length)
            k = len(fields[1])
            vector[fields[0].long() if name == "top-k" else _drawn(fields[0], k, vector)] = fields[1]
        case _:
            (vector,) = fields
    return vector.to(dtype)


def _factored(matrix: Tensor, rank: int) -> Tensor:
    """A matrix of that rank at most: a basis of its columns, (rows, rank), and it in that, (rank, columns).

    The basis is one of its products with vectors drawn at random, always the same (Halko et al. 2011, §1.3).
    """
    rng = np.random.default_rng(0)
    exact = matrix.double()
    drawn = torch.from_numpy(rng.standard_normal((matrix.shape[1], rank))).to(matrix.device)
    basis = torch.linalg.qr(exact @ drawn).Q
    return torch.cat([basis.flatten(), (basis.T @ exact).flatten()]).to(matrix.dtype)


def _rounded(vector: Tensor, dtype: torch.dtype) -> Tensor:
    """To the nearest number of a narrower type; what is too large for it, to its largest finite one."""
    most = min(torch.finfo(dtype).max, torch.finfo(vector.dtype).max)
    return vector.clamp(-most, most).to(dtype)


def _blocks(vector: Tensor) -> Tensor:
    """Shape (blocks, BLOCK), the last one filled up with zeros."""
    return functional.pad(vector, (0, -len(vector) % BLOCK)).view(-1, BLOCK)


def _to_int8(vector: Tensor) -> list[Tensor]:
    """The nearest of 255 multiples of a block's scale, its largest magnitude ÷ 127."""
    blocks = _blocks(vector.float())
    scales = blocks.abs().amax(1) / _MOST
    multiples = (blocks / scales[:, None]).nan_to_num(0.0).clamp(-_MOST, _MOST).round()
    return [scales, multiples.flatten()[: len(vector)].to(torch.int8)]


def _to_powers(vector: Tensor) -> list[Tensor]:
    """A sign, and the nearest of 2⁰, …, 2⁻⁶ times a block's largest magnitude, or 0: four bits."""
    blocks = _blocks(vector.float())
    scales = blocks.abs().amax(1)
    ratios = (blocks.abs().double() / scales[:, None]).nan_to_num(0.0, 0.0)
    share, exponent = torch.frexp(ratios)  # share: from ½ to 1
    level = (_LEVELS + exponent - (share < 0.75).int()).clamp(min=1) + 8 * (blocks < 0).int()
    codes = torch.where(ratios >= 2.0**-_LEVELS, level, 0).flatten()[: len(vector)].to(torch.uint8)
    pairs = functional.pad(codes, (0, len(codes) % 2)).view(-1, 2)
    return [scales, pairs[:, 0] | pairs[:, 1] << 4]


def _from_powers(scales: Tensor, packed: Tensor, length: int) -> Tensor:
    codes = torch.stack([packed & 15, packed >> 4], 1).flatten()[:length].int()
    level, sign = codes & 7, 1 - 2 * (codes >> 3)
    share = torch.where(level > 0, torch.ldexp(sign.float(), level - _LEVELS), 0.0)
    return (_blocks(share) * scales[:, None]).flatten()[:length]


def _to_signs(vector: Tensor, threshold: float) -> Tensor:
    """1 for what is at least the threshold, 2 for what is at most its negative, 0: four elements a byte."""
    codes = (vector >= threshold).to(torch.uint8) + 2 * (vector <= -threshold).to(torch.uint8)
    fours = functional.pad(codes, (0, -len(vector) % 16)).view(-1, 4) << _PAIRS.to(vector.device)
    return fours.sum(1, dtype=torch.uint8)


def _from_signs(packed: Tensor, threshold: float) -> Tensor:
    codes = ((packed[:, None] >> _PAIRS.to(packed.device)) & 3).flatten()
    return threshold * ((codes == 1).float() - (codes == 2).float())


def _to_bits(vector: Tensor) -> list[Tensor]:
    """Whether v ≥ 0, and for each block the mean of the elements below 0, and of the others; of none, 0."""
    blocks = _blocks(vector)
    signs = _blocks(vector >= 0)
    # float64: a sum of equal levels is exact, so that decoded vectors are sent as they are
    high = blocks.clamp(min=0).sum(1, dtype=torch.float64) / signs.sum(1).clamp(min=1)
    low = blocks.clamp(max=0).sum(1, dtype=torch.float64) / (blocks < 0).sum(1).clamp(min=1)
    eights = signs.view(torch.uint8).view(-1, 8) << _BITS.to(vector.device)
    packed = eights.sum(1, dtype=torch.uint8)[: -(-len(vector) // 8)]
    return [torch.stack([low, high], 1).float().flatten(), packed]


def _from_bits(levels: Tensor, packed: Tensor, length: int) -> Tensor:
    bits = (packed[:, None] >> _BITS.to(packed.device)) & 1
    low, high = levels.view(-1, 2, 1).unbind(1)
    return torch.where(_blocks(bits.flatten()[:length].bool()), high, low).flatten()[:length]


def _largest(vector: Tensor, k: int) -> Tensor:
    """The places of the `k` largest magnitudes, rising; of equal ones the first. A nan counts as ∞."""
    if k == 0:
        return torch.zeros(0, dtype=torch.int64, device=vector.device)
    magnitudes = vector.abs().nan_to_num(torch.inf, torch.inf)
    least = magnitudes.topk(k, sorted=False).values.min()  # torch does not say which of equal ones it takes
    above = (magnitudes > least).nonzero().flatten()
    equal = (magnitudes == least).nonzero().flatten()[: k - len(above)]
    return torch.cat([above, equal]).sort().values


def _drawn(seed: Tensor, k: int, vector: Tensor) -> Tensor:
    """`k` different places in the vector, drawn evenly by the seed's bytes."""
    rng = np.random.default_rng(int.from_bytes(bytes(seed.tolist()), "little"))
    places = rng.choice(len(vector), k, replace=False, shuffle=False) if k else np.zeros(0, np.int64)
    return torch.from_numpy(places).to(vector.device)
