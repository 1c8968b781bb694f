"""An accelerator that is none (accelerator.cpp), which torch finds by itself as it finds any maker's.

`torch.accelerator` then has two devices, `fake:0` and `fake:1`. It is built by torch's own tools.
"""

import ctypes
import mmap
import os
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from tests.support import ROOT

NAME, DEVICES = "fake", 2
_mapped: list[mmap.mmap] = []
handles: set[int] = set()
"""Pieces that this process has offered to another, and nobody of its threads has mapped."""
_SOURCE = Path(__file__).with_name("accelerator.cpp")
_BACKEND = "from pathlib import Path\nfrom tests.support.accelerator import load\n\n"


def built(folder: Path) -> Path:
    """Compile it in a folder, about half a minute; what has that folder on its path has the devices."""
    from torch.utils import cpp_extension

    cpp_extension.load(
        "accelerator", [str(_SOURCE)], extra_cflags=["-O1"], build_directory=str(folder),
        is_python_module=False,
    )  # fmt: skip
    (folder / "fake_backend.py").write_text(
        f"{_BACKEND}def begin():\n    load(Path({str(folder / 'accelerator.so')!r}))\n"
    )
    told = folder / "fake_backend-0.dist-info"
    told.mkdir(exist_ok=True)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: fake_backend\nVersion: 0\n")
    (told / "entry_points.txt").write_text("[torch.backends]\nfake = fake_backend:begin\n")
    return folder


def environment(folder: Path) -> dict[str, str]:
    """That of a process that has the devices."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "OMP_NUM_THREADS": "1"}


def load(library: Path) -> None:
    """Let this process have the devices."""
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _module())
    torch.utils.generate_methods_for_privateuse1_backend()
    torch.ops.load_library(str(library))
    torch.UntypedStorage._share_fake_ = _share  # type: ignore[attr-defined]
    torch.UntypedStorage._new_shared_fake = staticmethod(_new_shared)  # type: ignore[attr-defined]


def _share(storage: Any) -> tuple[Any, ...]:
    """As CUDA's `_share_cuda_`: the device first, then what another process maps the memory by."""
    file = os.memfd_create(NAME)
    os.ftruncate(file, storage.nbytes())
    there = bytes(torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).cpu().tolist())
    os.pwrite(file, there, 0)
    _lie_in(storage, file)
    handles.add(file)
    return storage.device.index, os.getpid(), file, storage.nbytes(), b"as bytes are"


def _new_shared(device: int, process: int, file: int, nbytes: int, said: bytes) -> Any:
    assert said == b"as bytes are"
    storage = torch.empty(nbytes, dtype=torch.uint8, device=f"{NAME}:{device}").untyped_storage()
    there = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR)
    handles.discard(file)
    _lie_in(storage, there)
    os.close(there)
    return storage


def _lie_in(storage: Any, file: int) -> None:
    memory = mmap.mmap(file, 0)
    _mapped.append(memory)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    torch.ops.fake.lie_at(torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage), address)


def _module() -> Any:
    """What Python code finds as `torch.fake`; random numbers are the CPU's."""
    module: Any = ModuleType(f"torch.{NAME}")
    module.is_available = lambda: True
    module.device_count = lambda: DEVICES
    module.current_device = torch.accelerator.current_device_index
    module.get_device_properties = lambda number: SimpleNamespace(uuid=f"{NAME.upper()}-{number}")
    module.get_device_name = lambda number: NAME
    module.get_amp_supported_dtype = lambda: [torch.bfloat16]
    module._is_in_bad_fork = lambda: False
    module.manual_seed = module.manual_seed_all = lambda seed: None
    module.get_rng_state = lambda device: torch.empty(0, dtype=torch.uint8)
    module.set_rng_state = lambda state, device: None
    return module
