"""A study's config: TOML in, validated and frozen models out.

The models have the layout of the file, so that a config as run, every default filled in, is again a
file that `load` accepts.  `jaxbench.config_check` finds what is wrong with a file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
)

from jaxbench import toml_text
from jaxbench.base import JaxbenchError
from jaxbench.ledger import LEDGER

FIRST_TUNING_SEED = 100


class ConfigError(JaxbenchError):
    """A config that cannot be used; its text names every problem with its place."""


class Part(BaseModel):
    """Strict and frozen: no unknown keys, no conversions, no NaN."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


def all_different(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse a value that stands twice."""
    twice = [value for place, value in enumerate(values) if values.index(value) < place]
    if twice:
        raise ValueError(f"expected different values, got {', '.join(map(str, twice))} twice")
    return values


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80)]
Grid = dict[str, Annotated[tuple[float, ...], Field(min_length=1), AfterValidator(all_different)]]
Swept = dict[str, Annotated[tuple[Any, ...], Field(min_length=1), AfterValidator(all_different)]]


class Choice(Part):
    """A track or model by name, with its options beside the name."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(description="a registered name, or a path ending in .py")

    @property
    def options(self) -> dict[str, Any]:
        """Every option of `build`, defaults filled in."""
        return dict(self.model_extra or {})


class Training(Part):
    """How every run trains: Adam for some epochs."""

    epochs: int = Field(default=12, ge=1, description="passes over the training split")
    batch_size: int = Field(default=32, ge=1, description="samples a step")
    clip_norm: float | None = Field(
        default=None, gt=0, description="greatest global norm of a gradient"
    )


class Protocol(Part):
    """How arms are tuned and compared."""

    rules: Literal["modern", "v1"] = Field(
        default="modern", description="v1: as in the first reports"
    )
    seeds: int = Field(
        default=8, ge=2, le=FIRST_TUNING_SEED, description="evaluation seeds, 0 to seeds - 1"
    )
    tuning_seeds: int = Field(default=4, ge=1, le=1000, description="tuning seeds, from 100 on")
    parity: Literal["fill", "strict", "off"] = Field(
        default="fill", description="equal tuning trials"
    )
    evaluate: Literal["auto", "grid", "selected"] = Field(
        default="auto", description="what is evaluated"
    )
    extend_grid: bool = Field(
        default=False, description="widen grids until the best value is inside"
    )
    alpha: float = Field(default=0.05, gt=0, lt=0.5, description="level of the tests")
    margin: float = Field(
        default=0.05, gt=0, le=1, description="equivalence margin, share of the baseline"
    )
    max_seeds: int | None = Field(
        default=None,
        ge=2,
        le=FIRST_TUNING_SEED,
        description="add seeds, `seeds` at a time, until a sequential test decides; the most",
    )

    @field_validator("max_seeds")
    @classmethod
    def fits_the_rest(cls, value: int | None, others: ValidationInfo) -> int | None:
        """Refuse a sequence of seeds that cannot begin, or that would select by them."""
        if value is None:
            return None
        seeds = others.data.get("seeds", 2)
        if value < seeds:
            raise ValueError(f"expected at least protocol.seeds = {seeds}, got {value}")
        if others.data.get("rules") == "v1" or others.data.get("evaluate") == "grid":
            raise ValueError(
                "seeds can be added only where configurations are selected on other seeds "
                "beforehand: leave out rules = 'v1' and evaluate = 'grid'"
            )
        return value

    @property
    def evaluation_seed_list(self) -> tuple[int, ...]:
        """The seeds on which arms are compared."""
        return tuple(range(self.seeds))

    @property
    def tuning_seed_list(self) -> tuple[int, ...]:
        """The seeds on which arms are tuned; no evaluation seed is among them."""
        return tuple(range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + self.tuning_seeds))


class Arm(Part):
    """One side of a study; its `fixed` names every hyperparameter that no grid varies."""

    intervention: str = Field(description="a registered name, or a path ending in .py")
    options: dict[str, Any] = Field(
        default={}, description="static values of the intervention's build"
    )
    fixed: dict[str, float] = Field(default={}, description="hyperparameters held at one value")
    grid: Grid = Field(default={}, description="hyperparameters that this arm tunes")
    model: Choice | None = Field(default=None, description="another model than the study's")
    epochs: int | None = Field(
        default=None, ge=1, description="passes over the training split, if not training.epochs"
    )


class Comparison(Part):
    """One arm against another."""

    idea: str = Field(description="the name of an arm")
    baseline: str = Field(description="the name of an arm")
    role: Literal["primary", "secondary", "control"] = Field(description="its part in the verdict")
    endpoint: str | None = Field(
        default=None, description="a scalar that both arms measure, compared instead of the score"
    )


class Sweep(Part):
    """Values whose product makes arms and comparisons; see `jaxbench.config_sweep`."""

    arms: tuple[Name, ...] | None = Field(
        default=None, min_length=1, description="the arms that are swept; all of them by default"
    )
    primary: dict[str, Any] = Field(default={}, description="the point that stays primary")
    options: Swept = Field(default={}, description="values of the interventions' options")
    fixed: Swept = Field(default={}, description="values of hyperparameters that no grid varies")
    model: Swept = Field(default={}, description="values of the model's options")


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a config came from: its folder, the command line, digests of the files it names."""

    base_folder: Path = Path()
    command: tuple[str, ...] = ()
    quick: bool = False
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Config(Part):
    """A study, every default filled in."""

    name: Name = Field(description="names the study's folder of results")
    title: str = Field(default="", description="one line for people")
    description: str = Field(default="", description="what the study asks")
    track: Choice
    model: Choice
    training: Training = Training()
    protocol: Protocol = Protocol()
    grid: Grid = Field(default={}, description="hyperparameters that every arm tunes")
    arms: dict[Name, Arm] = Field(min_length=2, description="the arms by name")
    comparisons: tuple[Comparison, ...] = Field(min_length=1)
    _origin: Origin = PrivateAttr(default_factory=Origin)

    @field_validator("name")
    @classmethod
    def leaves_the_ledger_alone(cls, value: str) -> str:
        """Refuse a name whose folder would stand where the ledger of looks does."""
        if value.lower() == LEDGER:
            raise ValueError(f"{value!r} is the ledger of looks in the results folder; rename it")
        return value

    @property
    def base_folder(self) -> Path:
        """The folder to which paths in the config are relative."""
        return self._origin.base_folder

    @property
    def primary(self) -> Comparison:
        """The comparison that makes the verdict."""
        return next(each for each in self.comparisons if each.role == "primary")

    def model_of(self, arm: str) -> Choice:
        """Return the model that an arm trains."""
        return self.arms[arm].model or self.model

    def grid_of(self, arm: str) -> dict[str, tuple[float, ...]]:
        """Return what an arm tunes: the shared grid less what it fixes, then its own."""
        fixed = self.arms[arm].fixed
        shared = {name: values for name, values in self.grid.items() if name not in fixed}
        return {**shared, **self.arms[arm].grid}

    def identity_of(self, arm: str) -> dict[str, Any]:
        """Return what an arm's scores depend on besides its grid and seeds, as strict JSON."""
        model, own = self.model_of(arm), self.arms[arm]
        files = [self.track.name, model.name, own.intervention]
        files += [each for each in map(str, self.track.options.values()) if self.is_source(each)]
        parts = {"track": self.track, "model": model, "training": self.training}
        return {
            **{
                name: part.model_dump(mode="json", exclude_none=True)
                for name, part in parts.items()
            },
            "arm": own.model_dump(mode="json", include={"intervention", "options", "fixed"})
            | ({} if own.epochs is None else {"epochs": own.epochs}),
            "sources": {path: self._origin.sources.get(path) for path in files},
        }

    def is_source(self, name: str) -> bool:
        """Whether this names a file whose content decides the numbers."""
        return name in self._origin.sources

    @property
    def sources(self) -> dict[str, str]:
        """The digests of the files that decide the numbers, by the names that the config uses."""
        return dict(self._origin.sources)

    def as_run(self) -> dict[str, Any]:
        """Return the config as plain data in the layout of the file, without options at None."""
        return self.model_dump(mode="json", exclude_none=True)

    def to_toml(self) -> str:
        """Write the config as run; loaded, it has the same digest."""
        return toml_text.dumps(self.as_run())

    @property
    def quick(self) -> bool:
        """Whether it is a study in its quick form, which only shows that the study works."""
        return self._origin.quick

    def how_to_run(self) -> str:
        """Return the command that made this config, quoted for a shell."""
        return shlex.join(self._origin.command)


def digest(config: Config) -> str:
    """Compute the SHA-256 (hexadecimal) of what decides the numbers.

    That is the canonical JSON of the config as run, without its title and description, and the
    digests of the Python files and of the data that it names by path.
    """
    content = {k: v for k, v in config.as_run().items() if k not in ("title", "description")}
    content["sources"] = config.sources
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# --------------------------------------------------------------------------------------------------
# Loading
# --------------------------------------------------------------------------------------------------


def shipped_folder() -> Path:
    """Find the configs that come with jaxbench: in the wheel, or at the top of a checkout."""
    package = Path(__file__).parent
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def shipped() -> dict[str, Path]:
    """Find the studies that come with jaxbench, each with its file."""
    return {path.stem: path for path in sorted(shipped_folder().glob("*.toml"))}


def available() -> dict[str, str]:
    """List the studies that come with jaxbench, each with its title."""
    titles = {}
    for name, path in shipped().items():
        try:
            titles[name] = str(tomllib.loads(path.read_text("utf-8")).get("title", ""))
        except (OSError, ValueError) as error:
            titles[name] = f"cannot be read: {error}"
    return titles


def load(
    name_or_path: str | os.PathLike[str],
    overrides: Sequence[tuple[str, str]] = (),
    *,
    seeds: int | None = None,
    max_seeds: int | None = None,
    quick: bool = False,
    track: str | None = None,
) -> Config:
    """Load a study by name, or from a path that ends in .toml or has a separator in it.

    Args:
        name_or_path: the study.
        overrides: dotted keys with values in TOML (text where they are none), set last.
        seeds: evaluation seeds, in place of `protocol.seeds`.
        max_seeds: add seeds until it is decided, up to so many: `protocol.max_seeds`.
        quick: whether to lay the file's `[quick]` table over it.
        track: lay the file's table of this track over it: see `jaxbench.config_tracks`.

    Raises:
        ConfigError: with every problem and its place.
    """
    from jaxbench import config_check

    name = os.fspath(name_or_path)
    path = locate(name)
    text, document = _read(path)
    document.setdefault("name", path.stem)
    command = ["jaxbench", "run", name]
    command += ["--quick"] * quick
    command += [] if track is None else ["--tracks", track]
    command += [word for key, value in overrides for word in ("--set", f"{key}={value}")]
    command += ["--seeds", str(seeds)] if seeds is not None else []
    command += ["--until-decided", "--max-seeds", str(max_seeds)] if max_seeds is not None else []
    numbers = {"protocol.seeds": seeds, "protocol.max_seeds": max_seeds}
    given = [(key, str(number)) for key, number in numbers.items() if number is not None]
    changes = [*overrides, *given]
    return config_check.resolve(
        document, changes, quick=quick, track=track, label=str(path), text=text,
        origin=Origin(path.resolve().parent, tuple(command), quick),
    )  # fmt: skip


def read(name_or_path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a study's file as it is, under its name.

    Raises:
        ConfigError: there is none, or it is no TOML.
    """
    path = locate(os.fspath(name_or_path))
    return {"name": path.stem, **_read(path)[1]}


def from_run(document: Mapping[str, Any], base_folder: Path | None = None) -> Config:
    """Load a config from the data of `as_run`, such as a report's.

    Raises:
        ConfigError: as for `load`.
    """
    from jaxbench import config_check

    return config_check.resolve(
        dict(document), label="the config", origin=Origin(base_folder or Path.cwd())
    )


def locate(name: str) -> Path:
    """Find the file of a study, or say what was looked for."""
    from jaxbench.registry import nearest

    separators = {"/", os.sep, os.altsep or "/"}
    path = Path(name).expanduser()
    own = shipped()
    if path.is_dir() and name not in own:
        raise ConfigError(f"{name} is a folder; expected a TOML file or the name of a study")
    if not name.endswith(".toml") and not any(each in name for each in separators):
        if name not in own:
            raise ConfigError(
                f"no study named {name!r}{nearest(name, own)}"
                f" (studies: {', '.join(own) or 'none'}; or a path ending in .toml)"
            )
        return own[name]
    if not path.exists():
        neighbours = [each.name for each in path.parent.glob("*.toml")]
        raise ConfigError(f"no file {name}{nearest(path.name, neighbours)}")
    return path


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    """Read a TOML file: its text and what it says."""
    try:
        text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        return text, tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not TOML: it is not UTF-8 text ({error.reason})") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
