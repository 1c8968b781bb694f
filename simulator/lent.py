"""Arrays that a compiled function does not count the owners of: its caller has them.

numba counts them, by a locked instruction, wherever an array is handed on, also to a function that becomes a
part of its caller. In a loop of small functions that takes more than half of the time.
"""

from collections.abc import Callable
from typing import Any, cast

from lockstep.simulator.jit import able, linker


def _lent() -> Callable[[Any], Any]:
    if linker() or not able():
        return lambda given: given
    from numba import types
    from numba.extending import intrinsic

    arrays: Any = types.Array
    tuples: Any = types.BaseTuple

    def without_owner(context: Any, builder: Any, kind: Any, value: Any) -> Any:
        if isinstance(kind, tuples):
            found = [
                without_owner(context, builder, each, builder.extract_value(value, place))
                for place, each in enumerate(kind)
            ]
            return context.make_tuple(builder, kind, found)
        if isinstance(kind, arrays):
            array = context.make_array(kind)(context, builder, value)
            array.meminfo = array.meminfo.type(None)  # none: there is nothing to count
            return array._getvalue()
        return value

    @intrinsic
    def lent(_: Any, given: Any) -> Any:
        def made(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return without_owner(context, builder, given, arguments[0])

        return given(given), made

    return cast(Callable[[Any], Any], lent)


lent = _lent()
"""The same arrays, or tuples with some, for a compiled function that returns none of them."""
