"""What a message of each codec consists of, and so its size on the wire. Loads no torch.

A codec is (name, ratio, threshold, rank, columns): strategies/codecs.py.
"""

import functools

from lockstep.workloads.sizes import ITEMSIZE

# Elements with a scale (int8, e3m0) or a pair of levels (1-bit) of their own. Such blocks stand for the
# columns of Seide et al.: a flat vector has none. The levels of a block cost a quarter of a bit an element; a
# larger block would save little and mix more layers, whose gradients differ in size. A multiple of 8: whole
# bytes.
BLOCK = 256
OWN = "the vector's own type"
SEED_BYTES = 8
_ITEMSIZE = ITEMSIZE | {"int32": 4, "int8": 1, "uint8": 1}


def kept(ratio: float, length: int) -> int:
    """How many of `length` elements top-k and random-k send: at least one, if there is one."""
    return min(length, max(1, round(ratio * length)))


def layout(codec: tuple[str, float, float, int, int], length: int) -> list[tuple[int, str]]:
    """The fields of a message, one after another, as (number of values, their type)."""
    name, ratio, _, rank, columns = codec
    blocks, k = -(-length // BLOCK), kept(ratio, length)
    return {
        "none": [(length, OWN)],
        "fp16": [(length, "float16")],
        "bf16": [(length, "bfloat16")],
        "int8": [(blocks, "float32"), (length, "int8")],  # scales, multiples
        "e3m0": [(blocks, "float32"), (-(-length // 2), "uint8")],  # scales, two elements a byte
        "2-bit": [(4 * -(-length // 16), "uint8")],  # sixteen elements in four bytes
        "1-bit": [(2 * blocks, "float32"), (-(-length // 8), "uint8")],  # two levels a block, eight bits each
        "top-k": [(k, "int32"), (k, OWN)],  # indices, values
        "outer": [(rank * (length // columns), OWN), (rank * columns, OWN)],  # a basis, the gradient in it
        "random-k": [(SEED_BYTES, "uint8"), (k, OWN)],  # the seed that gives the indices, values
    }[name]


@functools.lru_cache(1024)
def nbytes(codec: tuple[str, float, float, int, int], length: int, itemsize: int) -> int:
    """The bytes on the wire of a vector of `length` elements of `itemsize` bytes each."""
    size = _ITEMSIZE | {OWN: itemsize}
    return sum(count * size[kind] for count, kind in layout(codec, length))
