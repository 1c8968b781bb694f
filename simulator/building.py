"""Builds a function of a kernel into a library (native.py): numba compiles it, the C compiler links it."""

import ctypes
import os
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args, get_origin

import llvmlite.binding as llvm
import numpy as np
from numba import from_dtype, types
from numba.np import arrayobj

from lockstep.simulator.native import ENTRY, UNFINISHED, arguments, words

_PR_SET_PDEATHSIG = 1
_COUNTS = re.compile(r"^define [^\n]*@NRT_(in|de)cref\(.*?^\}", re.MULTILINE | re.DOTALL)


def main() -> None:
    """Write the library, as a whole or not at all; given: kernel, function, compiler and library."""
    kernel, name, compiler, library = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody waits for it any more
    function = getattr(import_module(f"lockstep.simulator.{kernel}"), name)
    code = _machine_code(function)
    path = Path(library)
    with TemporaryDirectory(prefix=UNFINISHED, dir=path.parent) as folder:
        made, linked = Path(folder, "made.o"), Path(folder, "linked.so")
        made.write_bytes(code)
        # -z defs: whatever is missing is said here, and not in the middle of a simulation
        flags = ["-shared", "-nostartfiles", "-Wl,-z,defs"]
        command = [compiler, *flags, "-o", str(linked), str(made), "-lm", "-lc"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        linked.chmod(0o755)
        os.replace(linked, path)


def _machine_code(function: Any) -> bytes:
    """What numba makes of it for any machine of this kind, without its doors to Python."""
    kinds = arguments(function.py_func)
    _count_from_0()
    function.compile(tuple(_type(kind) for kind in kinds))
    (signature,) = function.signatures
    overload = function.overloads[signature]
    if overload.signature.return_type != types.int64:
        raise TypeError(f"{function.__name__} returns {overload.signature.return_type}")
    code = function.inspect_llvm(signature)
    # arrays come without an owner: there is nobody to count (and what would make arrays could not be linked)
    code = _COUNTS.sub(r"define internal void @NRT_\1cref(ptr %.1) { ret void }", code)
    module = llvm.parse_assembly(code + _entry(overload.fndesc.llvm_func_name, kinds))
    for each in module.functions:
        if each.name != ENTRY and not each.is_declaration:
            each.linkage = "internal"
            each.add_function_attribute("alwaysinline")  # else each call hands on a hundred words of arrays
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(cpu="generic", opt=3, reloc="pic", codemodel="default")
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    found: bytes = machine.emit_object(module)
    return found


def _count_from_0() -> None:
    """Let numba not look at each index whether it counts from the end: in the kernels none does.

    numba has no setting for that, so its function is replaced; a numba that has another one still looks.
    """

    def as_given(context: Any, builder: Any, kind: Any, index: Any, _: Any) -> Any:
        return context.cast(builder, index, kind, types.intp if kind.signed else types.uintp)

    arrayobj.fix_integer_index = as_given


def _entry(name: str, kinds: list[Any]) -> str:
    """What reads the arguments of the function of that name from a list of words."""
    flat = [each for kind in kinds for each in words(kind)]
    lines = [
        f"%p{n} = getelementptr i64, ptr %words, i64 {n}\n%w{n} = load {each}, ptr %p{n}"
        for n, each in enumerate(flat)
    ]
    given = ", ".join(f"{each} %w{n}" for n, each in enumerate(flat))
    lines.append(f'%status = call i32 @"{name}"(ptr %found, ptr %error, {given})\nret i32 %status')
    return "\n".join([f"\ndefine i32 @{ENTRY}(ptr %found, ptr %error, ptr %words) {{", *lines, "}"])


def _type(kind: Any) -> Any:
    """numba's, of an argument."""
    if kind in (int, float):
        return types.int64 if kind is int else types.float64
    if get_origin(kind) is tuple:
        tuples: Any = types.Tuple
        return tuples([_type(each) for each in get_args(kind)])
    dtype, dimensions = kind.__metadata__
    return types.Array(from_dtype(np.dtype(dtype)), dimensions, "C")
