"""Hooks of a user's file: what they raise, or return wrongly, is said with file, line and hook.

Every function that a track, model or intervention hands to the engine is called through a guard.
It changes no value; it costs nothing once a program is traced.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import linecache
import traceback
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxbench.base import Context, Intervention, JaxbenchError, Model, Track
from jaxbench.causes import said
from jaxbench.nearest import nearest

Check = Callable[[tuple[Any, ...], Any], str | None]
"""`(arguments, result) -> what is wrong with the result`, or None."""

DIRECTIONS = ("lower", "higher")
"""In which a score can improve."""


class HookError(JaxbenchError):
    """A hook of a track, model or intervention failed; its text says where and why."""

    exit_code = 1


@dataclasses.dataclass(frozen=True)
class Owner:
    """Whose hooks are guarded: `kind` and `name` for people, and the file they stand in."""

    kind: str
    name: str
    path: Path

    def hook(self, name: str, function: Callable[..., Any], check: Check | None = None) -> Any:
        """Guard one hook: say where it raises, and what is wrong with what it returns."""

        @functools.wraps(function)
        def guard(*arguments: Any, **named: Any) -> Any:
            try:
                result = function(*arguments, **named)
            except JaxbenchError:
                raise
            except (Exception, SystemExit) as error:
                raise self.raised(name, error) from error
            wrong = check(arguments, result) if check else None
            if wrong:
                raise HookError(f"{place_of(function, self.path)}: {name} of {self} {wrong}")
            return result

        return guard

    def raised_in(self, error: BaseException) -> bool:
        """Whether an exception passed through this file."""
        frames = traceback.extract_tb(error.__traceback__)
        return any(Path(frame.filename) == self.path for frame in frames)

    def raised(self, hook: str, error: BaseException) -> HookError:
        """Say where in the file an exception came from, and what it was."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if Path(frame.filename) == self.path]
        theirs = [frame for frame in frames if "site-packages" not in frame.filename]
        frame = (own or theirs or frames)[-1]
        code = linecache.getline(frame.filename, frame.lineno or 0).strip()
        at = f"{_named(frame.filename)}, line {frame.lineno}"
        quoted = f" (`{code}`)" if code else ""
        return HookError(f"{at}, in {hook} of {self}{quoted}: {said(error)}")

    def __str__(self) -> str:
        return f"the {self.kind} {self.name}"


def place_of(function: Callable[..., Any], path: Path | None = None) -> str:
    """Say in which file and line a function is defined."""
    code = _code_of(function)
    if code is None:
        return str(path or function)
    return f"{_named(code.co_filename)}, line {code.co_firstlineno}"


def _named(file: str) -> str:
    """Name a file: one of ours by its place in the package, which is the same on each machine."""
    package = Path(__file__).parent
    return str(Path(file).relative_to(package.parent)) if package in Path(file).parents else file


def file_of(function: Callable[..., Any]) -> Path:
    """Say in which file a function is defined."""
    code = _code_of(function)
    return Path(code.co_filename if code else "")


def _code_of(function: Callable[..., Any]) -> types.CodeType | None:
    inner = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    return getattr(inner, "__code__", None)


def guarded(built: Any, path: Path) -> Any:
    """Return a track, model or intervention whose hooks are guarded.

    Args:
        built: what a file's `build` returned.
        path: the file.
    """
    if isinstance(built, Track):
        owner = Owner("track", built.name, path)
        _check_direction(owner, "metric", getattr(built.metric, "direction", None))
        return _replaced(owner, built, TRACK_HOOKS)
    if isinstance(built, Model):
        return _replaced(Owner("model", built.name, path), built, MODEL_HOOKS)
    owner = Owner("intervention", built.name, path)
    for endpoint in built.endpoints:
        if endpoint.direction is not None:
            _check_direction(owner, f"endpoint {endpoint.name!r}", endpoint.direction)
    phases = tuple(
        phase._replace(surgery=owner.hook("surgery", phase.surgery, _is_carry))
        if phase.surgery is not None
        else phase
        for phase in built.phases
    )
    changed: dict[str, Any] = {"phases": phases}
    if not _is_default(built, "wrap_model"):
        changed["wrap_model"] = _guarded_model(owner, built)
    if not _is_default(built, "wrap_optimizer"):
        changed["wrap_optimizer"] = _guarded_optimizer(owner, built)
    return dataclasses.replace(_replaced(owner, built, INTERVENTION_HOOKS), **changed)


def _check_direction(owner: Owner, of: str, direction: str | None) -> None:
    """Refuse a direction in which no score can improve."""
    if direction not in DIRECTIONS:
        raise JaxbenchError(
            f"{owner.path}: the direction of the {of} of {owner} must be 'lower' or 'higher', but "
            f"is {direction!r}{nearest(str(direction), DIRECTIONS)}"
        )


def _replaced(owner: Owner, built: Any, checks: Mapping[str, Check | None]) -> Any:
    guards = {
        name: owner.hook(name, getattr(built, name), check)
        for name, check in checks.items()
        if getattr(built, name) is not None and not _is_default(built, name)
    }
    return dataclasses.replace(built, **guards)


def _is_default(built: Any, name: str) -> bool:
    """Whether a hook was left at what does nothing."""
    [field] = [each for each in dataclasses.fields(built) if each.name == name]
    return getattr(built, name) is field.default


def _guarded_model(owner: Owner, intervention: Intervention) -> Any:
    wrap = owner.hook("wrap_model", intervention.wrap_model, _is_model)

    @functools.wraps(intervention.wrap_model)
    def wrap_model(model: Model) -> Model:
        wrapped = wrap(model)
        changed = {
            name: owner.hook(f"wrap_model ({name})", getattr(wrapped, name), check)
            for name, check in MODEL_HOOKS.items()
            if getattr(wrapped, name) is not getattr(model, name)
        }
        return dataclasses.replace(wrapped, **changed)

    return wrap_model


def _guarded_optimizer(owner: Owner, intervention: Intervention) -> Any:
    wrap = owner.hook("wrap_optimizer", intervention.wrap_optimizer, _is_optimizer)

    @functools.wraps(intervention.wrap_optimizer)
    def wrap_optimizer(optimizer: Any, ctx: Context) -> Any:
        import optax

        wrapped = optax.with_extra_args_support(wrap(_telling_of_leaves(optimizer, ctx), ctx))
        return optax.GradientTransformationExtraArgs(
            owner.hook("wrap_optimizer (init)", wrapped.init),
            owner.hook("wrap_optimizer (update)", wrapped.update, _is_update),
        )

    return wrap_optimizer


def _telling_of_leaves(optimizer: Any, ctx: Context) -> Any:
    """Give the same optimizer; where it fails on updates unlike the parameters, it says which leaf.

    It works on one vector of all parameters, so that its own text would name no leaf.
    """

    def update(updates: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return optimizer.update(updates, *arguments, **named)
        except (TypeError, ValueError) as error:
            wrong = _same("updates", ctx.params0, updates)
            if wrong is None:
                raise
            raise ValueError(f"it {wrong}") from error

    return optimizer._replace(update=update)


# --------------------------------------------------------------------------------------------------
# What a hook must return
# --------------------------------------------------------------------------------------------------


def _is_scalar(arguments: tuple[Any, ...], result: Any) -> str | None:
    del arguments
    import jax.numpy as jnp

    shape, dtype = getattr(result, "shape", None), getattr(result, "dtype", None)
    number = isinstance(result, int | float) and not isinstance(result, bool)
    if number or (shape == () and dtype is not None and jnp.issubdtype(dtype, jnp.floating)):
        return None
    hint = "; reduce it, for example by .mean()" if shape else ""
    return f"must return a scalar of a floating type, but returned {shown(result)}{hint}"


def _is_model(arguments: tuple[Any, ...], result: Any) -> str | None:
    del arguments
    if isinstance(result, Model):
        return None
    return f"must return a jaxbench.base.Model, but returned {shown(result)}"


def _is_optimizer(arguments: tuple[Any, ...], result: Any) -> str | None:
    del arguments
    if callable(getattr(result, "init", None)) and callable(getattr(result, "update", None)):
        return None
    return f"must return an optax optimizer (init, update), but returned {shown(result)}"


def _is_update(arguments: tuple[Any, ...], result: Any) -> str | None:
    if not isinstance(result, tuple) or len(result) != 2:
        return f"must return (updates, opt_state), but returned {shown(result)}"
    gradient, opt_state = arguments[:2]
    return _same("updates", gradient, result[0]) or _same("opt_state", opt_state, result[1])


def _is_carry(arguments: tuple[Any, ...], result: Any) -> str | None:
    """Check (params, opt_state, state) against what the hook got, after its context."""
    names = ("params", "opt_state", "state")
    if not isinstance(result, tuple) or len(result) != len(names):
        return f"must return ({', '.join(names)}), but returned {shown(result)}"
    for name, before, after in zip(names, arguments[1:4], result, strict=True):
        wrong = _same(name, before, after)
        if wrong:
            return wrong
    return None


def _is_logged_carry(arguments: tuple[Any, ...], result: Any) -> str | None:
    if not isinstance(result, tuple) or len(result) != 4:
        return f"must return (params, opt_state, state, log), but returned {shown(result)}"
    log = result[3]
    if not isinstance(log, Mapping):
        return f"must return a log {{name: scalar}} last, but returned {shown(log)} there"
    for name, value in log.items():
        if getattr(value, "shape", ()) != ():
            return f"must log scalars, but {name!r} of its log is {shown(value)}"
    return _is_carry(arguments, result[:3])


def _is_table(arguments: tuple[Any, ...], result: Any) -> str | None:
    del arguments
    if not isinstance(result, Mapping):
        return f"must return {{name: array}}, but returned {shown(result)}"
    for name, value in result.items():
        if not isinstance(value, int | float) and not hasattr(value, "shape"):
            return f"must return {{name: array}}, but {name!r} of it is {shown(value)}"
    return None


def _is_forward(arguments: tuple[Any, ...], result: Any) -> str | None:
    del arguments
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping):
        return None
    return f"must return (outputs, {{name: array}}), but returned {shown(result)}"


def _is_splits(arguments: tuple[Any, ...], result: Any) -> str | None:
    del arguments
    names = ("train", "validation", "test")
    parts = [getattr(result, name, None) for name in names]
    if all(hasattr(part, "inputs") and hasattr(part, "targets") for part in parts):
        return None
    return f"must return Splits of three Batches, but returned {shown(result)}"


def _same(name: str, before: Any, after: Any) -> str | None:
    """Say how a tree differs in structure, shapes or types from what it was."""
    import jax

    old, new = (
        {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}
        for tree in (before, after)
    )
    for path in [*old, *new]:
        if path not in new:
            return f"must keep {name} as it is, but left out {name}{path}, {shown(old[path])}"
        if path not in old:
            return f"must keep {name} as it is, but added {name}{path}, {shown(new[path])}"
        if shown(old[path]) != shown(new[path]):
            return (
                f"must keep the shapes and types of {name}, but made {name}{path} "
                f"{shown(new[path])} instead of {shown(old[path])}"
            )
    structures = [str(jax.tree.structure(tree)) for tree in (before, after)]
    if structures[0] != structures[1]:
        return f"must keep the structure of {name}, {structures[0]}, but returned {structures[1]}"
    return None


TRACK_HOOKS: Mapping[str, Check | None] = {
    "generate": _is_splits,
    "loss": _is_scalar,
    "score": _is_scalar,
    "constant_loss": _is_scalar,
    "references": None,
    "longer_test": None,
    "free_run": None,
}
MODEL_HOOKS: Mapping[str, Check | None] = {"init": None, "apply": _is_forward}
INTERVENTION_HOOKS: Mapping[str, Check | None] = {
    "prepare": None,
    "init_state": None,
    "loss_term": _is_scalar,
    "after_epoch": _is_logged_carry,
    "measure": _is_table,
    "measure_host": _is_table,
    "units_left": None,
    "scans": None,
}


# --------------------------------------------------------------------------------------------------
# Words
# --------------------------------------------------------------------------------------------------


def shown(value: Any) -> str:
    """Describe a value by type and shape, such as `float32[32, 2]` or `a tuple of 3`."""
    if value is None:
        return "None"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, bool | int | float):
        import jax.numpy as jnp

        return f"{jnp.result_type(type(value))}[]"
    if isinstance(value, tuple | list | dict):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
