"""Frozen, slotted dataclasses that are created and changed at low cost, and named tuples created at low cost.

A `dataclass(frozen=True)` needs one call per field to initialize an object, and `dataclasses.replace` does this as well
and iterates over all fields: a replay, which changes a state per record, spends more time on these than on its rules.
Here an object is initialized as an instance of an *open* class with the same slots, where setting an attribute is one
step of the interpreter; when it is complete, it becomes an instance of the frozen class.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache, partial
from typing import Any, TypeVar

from coordinator_core.codegen import Source

State = TypeVar("State")
Row = TypeVar("Row", bound=tuple[Any, ...])


def maker_of(kind: type[Row]) -> Callable[[tuple[Any, ...]], Row]:
    """A function that makes a named tuple from a tuple: like `kind._make`, without a Python function call."""
    return partial(tuple.__new__, kind)


def with_fields(state: State, /, **changes: Any) -> State:
    """Like `dataclasses.replace`, for frozen dataclasses with slots and without `__post_init__`.

    Raises AttributeError for a field that the class does not have.
    """
    kind: Any = type(state)
    new = _opened(kind)(state)
    for name, value in changes.items():
        setattr(new, name, value)
    new.__class__ = kind
    return new  # type: ignore[no-any-return]


def quickly_made(kind: type[State]) -> type[State]:
    """Decorator of a frozen dataclass with slots and without `__post_init__`: an `__init__` with the same arguments and
    the same effect, at a quarter of the cost. Python creates a dictionary for keyword arguments: pass them by position
    where speed matters."""
    assert not hasattr(kind, "__post_init__"), "it would not be run"
    changed: Any = kind
    slow, every = changed.__init__, fields(changed)
    names = [field.name for field in every if field.init]
    defaults = slow.__defaults__ or ()
    default_of = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    source = Source(f"__init__({', '.join(['self', *names])})")
    become = source.name("become", object.__setattr__)
    source.add(f"{become}(self, '__class__', {source.name('Open', open_class(changed))})")
    for field in every:
        assert field.init or field.default is not MISSING, "where else would its value come from"
        value = field.name if field.init else source.name("default", field.default)
        if field.default_factory is not MISSING:
            is_absent = f"{value} is {source.name('absent', default_of[field.name])}"
            value = f"{source.name('factory', field.default_factory)}() if {is_absent} else {value}"
        source.add(f"self.{field.name} = {value}")
    source.add(f"self.__class__ = {source.name('Kind', kind)}")
    changed.__init__ = source.compiled(f"{kind.__name__}.__init__")
    changed.__init__.__defaults__ = slow.__defaults__
    return kind


@cache
def open_class(kind: type) -> type:
    """The open class of a frozen one: create an instance, set all of its slots, and set its `__class__` to `kind`."""
    return type(f"Open{kind.__name__}", kind.__bases__, {"__slots__": kind.__dict__["__slots__"]})


@cache
def _opened(kind: type) -> Callable[[Any], Any]:
    """A function that copies an object of `kind` into an open one; fields that are no arguments of the class have their
    default.
    """
    assert not hasattr(kind, "__post_init__"), "a copy would not run it"
    source = Source("opened(state)")
    source.add(f"new = {source.name('make', object.__new__)}({source.name('Open', open_class(kind))})")
    for field in fields(kind):
        if field.init:
            source.add(f"new.{field.name} = state.{field.name}")
        else:
            assert field.default is not MISSING, "where else would its value come from"
            source.add(f"new.{field.name} = {source.name('default', field.default)}")
    source.add("return new")
    return source.compiled(f"opened {kind.__name__}")
