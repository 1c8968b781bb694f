"""A base for small classes of fields, of which a list of strategies loads dozens."""

from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(eq_default=False)
class Plain:
    """As a dataclass, whose methods are not generated for each class: that takes most of its import."""

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = vars(cls).get("__annotations__", {})
        cls._fields += tuple(name for name in own if name not in cls._fields)

    def __init__(self, *values: Any, **named: Any) -> None:
        names = self._fields
        given = dict(zip(names, values, strict=False)) | named
        if len(values) + len(named) != len(given) or not given.keys() <= {*names}:
            raise TypeError(f"{type(self).__name__} takes {', '.join(names) or 'nothing'}")
        for name in names:
            setattr(self, name, given[name] if name in given else getattr(type(self), name))
