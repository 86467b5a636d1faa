"""Finds tracks, models and interventions by name, and says which options they take.

A name is that of a module in `jaxbench/tracks`, `models` or `interventions` that defines `build`,
or of an entry point in the group `jaxbench.tracks`, `.models` or `.interventions`, or a path that
ends in `.py`.  Looking a name up imports that one module only; listing names imports nothing.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import inspect
import json
import sys
import traceback
import types
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal

from jaxbench import hooks
from jaxbench.base import DataFiles, Intervention, JaxbenchError, Model, Track
from jaxbench.nearest import nearest

if typing.TYPE_CHECKING:
    import pydantic

Kind = Literal["tracks", "models", "interventions"]
KINDS: tuple[Kind, ...] = ("tracks", "models", "interventions")


class ImportFailedError(JaxbenchError):
    """A component's file raises when it is imported."""


@dataclasses.dataclass(frozen=True)
class Component:
    """A track, model or intervention that was found: its `build`, and where it comes from."""

    name: str
    kind: Kind
    build: Callable[..., Any]
    module: types.ModuleType
    source_path: Path
    summary: str

    def data_digests(self, options: Mapping[str, Any]) -> dict[str, str]:
        """Return the SHA-256 of each file or folder of data that these options name, by its name.

        What is not there is left out: building the component says so.
        """
        marked = {
            name: mark
            for name, field in options_model(self.build).model_fields.items()
            for mark in field.metadata
            if isinstance(mark, DataFiles)
        }
        found = {}
        for name, mark in marked.items():
            path = Path(str(options.get(name) or "")).expanduser()
            if not options.get(name) or not path.exists():
                continue
            within = {each for pattern in mark.patterns for each in path.glob(pattern)}
            digest = hashlib.sha256()
            for each in sorted(within) if path.is_dir() else [path]:
                if each.is_file():
                    digest.update(each.name.encode() + b"\0" + each.read_bytes())
            found[str(options[name])] = digest.hexdigest()
        return found

    def source_digest(self) -> str:
        """Return the SHA-256 of the source file, in hexadecimal."""
        return hashlib.sha256(self.source_path.read_bytes()).hexdigest()

    def make(self, options: Mapping[str, Any], **given: Any) -> Any:
        """Build it from validated options; `given` holds what the study adds, such as `outputs`.

        Raises:
            JaxbenchError: what was built is of another kind, such as an intervention as a track.
        """
        model = options_model(self.build, exclude=tuple(given))
        typed = model.model_validate_json(json.dumps(dict(options)))
        built = self.build(**{name: getattr(typed, name) for name in model.model_fields}, **given)
        expected = {"tracks": Track, "models": Model, "interventions": Intervention}[self.kind]
        if not isinstance(built, expected):
            raise JaxbenchError(
                f"{self.name!r} builds no {expected.__name__}, but a {type(built).__name__}; name "
                f"a file whose `build` returns a jaxbench.base.{expected.__name__}"
            )
        return hooks.guarded(built, self.source_path)


# --------------------------------------------------------------------------------------------------
# Names
# --------------------------------------------------------------------------------------------------


def is_path(name: str) -> bool:
    """Whether a component's name is a path to a Python file."""
    return name.endswith(".py")


def available(kind: Kind) -> dict[str, str]:
    """List every name of this kind with its one-line summary, without importing any."""
    found = {path.stem: _summary(path) for path in _builtin_files(kind)}
    for point in _entry_points(kind):
        source = _source_of(point.module)
        found.setdefault(point.name, _summary(source) if source else f"from {point.value}")
    return dict(sorted(found.items()))


def load(kind: Kind, name: str, base_folder: Path | None = None) -> Component:
    """Find the component of this name; a path is relative to `base_folder`, then to the cwd.

    Raises:
        JaxbenchError: no such name (with the nearest one), or the module fails to load.
    """
    singular = kind.removesuffix("s")
    if is_path(name):
        path = _find_file(singular, name, base_folder)
        module = _guarded(singular, name, functools.partial(_import_file, kind, path), path)
        return _component(kind, path.stem, module, "build")
    if _is_builtin(kind, name):
        import_it = functools.partial(importlib.import_module, f"jaxbench.{kind}.{name}")
        return _component(kind, name, _guarded(singular, name, import_it), "build")
    for point in _entry_points(kind):
        if point.name == name:
            import_it = functools.partial(importlib.import_module, point.module)
            module = _guarded(singular, name, import_it)
            return _component(kind, name, module, point.attr or "build")
    names = available(kind)
    raise JaxbenchError(
        f"no {singular} named {name!r}{nearest(name, names)}"
        f" ({kind}: {', '.join(names)}; or a path ending in .py)"
    )


def _component(kind: Kind, name: str, module: types.ModuleType, attribute: str) -> Component:
    """Wrap the module's build function, refusing a module that has none."""
    build = getattr(module, attribute, None)
    if not callable(build):
        raise JaxbenchError(
            f"{module.__file__} has no function {attribute!r}: a file of {kind} defines"
            f" `def {attribute}(*, option: type = default)`"
        )
    source = Path(module.__file__ or "")
    return Component(name, kind, build, module, source, _first_line(module.__doc__))


def _builtin_files(kind: Kind) -> list[Path]:
    """List the public modules of `jaxbench/<kind>` that define `build`."""
    files = [_builtin_folder(kind) / name for name in sorted(_names_in(kind))]
    return [path for path in files if _is_builtin(kind, path.stem)]


def _builtin_folder(kind: Kind) -> Path:
    """The folder of the package for this kind."""
    return Path(__file__).parent / kind


@functools.cache
def _is_builtin(kind: Kind, name: str) -> bool:
    """Whether `jaxbench/<kind>/<name>.py` is a public module that defines `build`."""
    path = _builtin_folder(kind) / f"{name}.py"
    return not name.startswith("_") and path.name in _names_in(kind) and _defines_build(path)


@functools.cache
def _names_in(kind: Kind) -> frozenset[str]:
    """The files of the package's folder for this kind, as they are spelled there."""
    return frozenset(path.name for path in _builtin_folder(kind).glob("*.py"))


def _entry_points(kind: Kind) -> Sequence[EntryPoint]:
    """List what other installed packages register; a built-in name goes before theirs."""
    return sorted(entry_points(group=f"jaxbench.{kind}"), key=lambda point: point.name)


def _find_file(singular: str, name: str, base_folder: Path | None) -> Path:
    """Find a file relative to the config's folder, then to the working directory."""
    folders = [folder for folder in (base_folder, Path.cwd()) if folder is not None]
    for folder in folders:
        path = (folder / Path(name).expanduser()).resolve()
        if path.is_file():
            return path
    looked = list(dict.fromkeys(str(folder.resolve()) for folder in folders))
    neighbours = [path.name for folder in folders for path in folder.glob("*.py")]
    raise JaxbenchError(
        f"no {singular} file {name!r}{nearest(Path(name).name, neighbours)}"
        f" (looked in {' and '.join(looked)})"
    )


# --------------------------------------------------------------------------------------------------
# Importing
# --------------------------------------------------------------------------------------------------


def _import_file(kind: Kind, path: Path) -> types.ModuleType:
    """Import a file under a name made of its path and text: the same text is imported once."""
    text = path.read_bytes()
    digest = hashlib.sha256(str(path).encode() + b"\0" + text).hexdigest()[:12]
    name = f"jaxbench_{kind}_{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        exec(compile(text, path, "exec"), module.__dict__)  # the text that was digested
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _guarded(
    singular: str, name: str, run: Callable[[], types.ModuleType], path: Path | None = None
) -> types.ModuleType:
    """Import, turning whatever a component's file raises into an error that says where it did."""
    try:
        return run()
    except JaxbenchError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if path and frame.filename == str(path)] or frames
        where = f"{own[-1].filename}, line {own[-1].lineno}"
        text = str(error)
        if isinstance(error, SyntaxError) and error.filename:
            where, text = f"{error.filename}, line {error.lineno}", error.msg
        raise ImportFailedError(
            f"the {singular} {name!r} cannot be imported: {type(error).__name__}: {text} ({where})"
        ) from error


# --------------------------------------------------------------------------------------------------
# Reading source without importing it
# --------------------------------------------------------------------------------------------------


def _parse(path: Path) -> ast.Module:
    """Parse a file; give an empty tree where it cannot be read."""
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])


def _defines_build(path: Path) -> bool:
    """Whether the file defines, imports or assigns `build` at its top level."""
    for node in _parse(path).body:
        match node:
            case ast.FunctionDef(name="build"):
                return True
            case ast.ImportFrom(names=aliases):
                if any((alias.asname or alias.name) == "build" for alias in aliases):
                    return True
            case ast.Assign(targets=[ast.Name(id="build")]):
                return True
    return False


def _summary(path: Path) -> str:
    """Read the first line of a file's docstring."""
    return _first_line(ast.get_docstring(_parse(path)))


def _first_line(docstring: str | None) -> str:
    """Take a docstring's first line without a leading `` `name`: `` and the full stop."""
    line = (docstring or "").strip().partition("\n")[0].strip().removesuffix(".")
    head, colon, tail = line.partition("`: ")
    return tail if colon and head.startswith("`") and " " not in head else line


def _source_of(module: str) -> Path | None:
    """Where a dotted module's source lies, found without importing its parent packages."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not rest:
        return Path(spec.origin) if spec.origin else None
    for root in spec.submodule_search_locations or ():
        stem = Path(root, *rest)
        for path in (stem.with_name(stem.name + ".py"), stem / "__init__.py"):
            if path.is_file():
                return path
    return None


# --------------------------------------------------------------------------------------------------
# Options
# --------------------------------------------------------------------------------------------------


def options_model(
    build: Callable[..., Any], exclude: Sequence[str] = ("outputs",)
) -> type[pydantic.BaseModel]:
    """Derive the strict pydantic model of a build function's keyword arguments.

    Types come from the signature, ranges from `Annotated[..., Ge(1)]`.  Unknown names, NaN and
    infinities are refused; a bool is no int, and an int is taken for a float.

    Raises:
        JaxbenchError: the signature has an argument without a name or type.
    """
    import pydantic

    function = inspect.unwrap(build)
    parameters = [p for p in inspect.signature(function).parameters.values()]
    parameters = [p for p in parameters if p.name not in exclude]
    where = f"{function.__module__}.{function.__qualname__}"
    for parameter in parameters:
        if parameter.kind not in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise JaxbenchError(f"{where}: {parameter} is no named option; name each option")
        if parameter.annotation is parameter.empty:
            raise JaxbenchError(f"{where}: the option {parameter.name!r} has no type; annotate it")
    hints = _hints(function, [parameter.name for parameter in parameters], where)
    fields: dict[str, Any] = {
        p.name: (hints[p.name], ... if p.default is p.empty else p.default) for p in parameters
    }
    settings = pydantic.ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False, frozen=True, protected_namespaces=()
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Field name .* shadows an attribute")
        return pydantic.create_model("Options", __config__=settings, **fields)


def _hints(function: Callable[..., Any], names: Sequence[str], where: str) -> dict[str, Any]:
    """Resolve the types of the named arguments; the return type may stay unresolvable."""
    annotations = getattr(function, "__annotations__", {})
    holder = types.SimpleNamespace(__annotations__={name: annotations[name] for name in names})
    try:
        return typing.get_type_hints(
            holder, getattr(function, "__globals__", {}), include_extras=True
        )
    except NameError as error:
        raise JaxbenchError(f"{where}: {error}; import what its types name at run time") from error
