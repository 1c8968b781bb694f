"""The stores of torch.distributed, which it exports in a way that type checkers do not see."""

from torch._C._distributed_c10d import FileStore, HashStore, PrefixStore, Store

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store"]
