"""Every model by its name: those of this package, of installed packages (entry points), and registered classes.

A class is imported when it is first looked up, by its dotted path. This module therefore imports no model, and every
module may import it.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from typing import TYPE_CHECKING, TypeVar

from monogram.errors import ParameterError, one_of
from monogram.models.builtin import BUILTIN

if TYPE_CHECKING:
    from monogram.models.base import Recommender

Model = TypeVar("Model", bound="type[Recommender]")
GROUP = "monogram.models"  # of entry points: name = "package.module:Class"


class Registry(Mapping[str, "type[Recommender]"]):
    """Model classes by their `name`, each imported when it is first looked up.

    Parameters
    ----------
    paths : "package.module:Class" by name
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = dict(paths)
        self._classes: dict[str, type[Recommender]] = {}

    def __getitem__(self, name: str) -> type[Recommender]:
        if name not in self._classes:
            module, _, attribute = self._paths[name].partition(":")
            try:
                self._classes[name] = getattr(importlib.import_module(module), attribute)
            except (ImportError, AttributeError) as error:
                raise ParameterError(
                    f"the model {name!r} cannot be imported from {self._paths[name]} ({error}); mend or uninstall the "
                    "package that registers it"
                ) from error
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __contains__(self, name: object) -> bool:
        return name in self._paths

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Inside, models can be added; afterwards the entries are as before. For tests."""
        before = dict(self._paths), dict(self._classes)
        try:
            yield
        finally:
            self._paths, self._classes = before

    def add_path(self, name: str, path: str) -> None:
        """Add a class by the place it is imported from, "package.module:Class", as an entry point does."""
        self._paths.setdefault(name, path)

    def add(self, model_class: type[Recommender]) -> None:
        """Add a class under its name."""
        self._paths[model_class.name] = f"{model_class.__module__}:{model_class.__qualname__}"
        self._classes[model_class.name] = model_class

    def discover(self) -> None:
        """Add the entry points of installed packages; a name that is registered already keeps its class."""
        for entry in metadata.entry_points(group=GROUP):
            self.add_path(entry.name, entry.value)


MODELS = Registry(BUILTIN)
MODELS.discover()
TUNED_BY_DEFAULT = ("ease", "edlae", "dlae", "deql")  # by `tune`, where no models are named
BASELINE, FLOOR = "ease", "popularity"  # what `tune` compares its best model with


def register(model_class: Model) -> Model:
    """Register a model class under its `name`, so that `load`, `tune`, the commands and the server accept it.

    It may be used as a decorator. A package registers its models for everyone who installs it by entry points of the
    group `monogram.models`, such as `mine = "package.module:Mine"`. `tune` searches the parameters that declare a
    search axis, `param(..., search=Search(...))` of `monogram.models.parameters` and `monogram.models.search_axes`.

    Parameters
    ----------
    model_class : dataclass that inherits from `Recommender`, with a class attribute `name`
    """
    if not (isinstance(model_class, type) and hasattr(model_class, "fit") and dataclasses.is_dataclass(model_class)):
        raise ParameterError(
            f"{model_class!r} cannot be registered; expected a dataclass that inherits from Recommender"
        )
    name = getattr(model_class, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ParameterError(
            f"{model_class.__name__} has the name {name!r}; expected a class attribute such as name = 'my_model'"
        )
    path = f"{model_class.__module__}:{model_class.__qualname__}"
    registered = MODELS._paths.get(name)
    if registered is not None and registered != path:
        raise ParameterError(
            f"the name {name!r} of {model_class.__name__} is taken by {registered}; give it another name"
        )
    MODELS.add(model_class)
    return model_class


def model_class(name: str) -> type[Recommender]:
    """The class that is registered under a name; ParameterError where there is none."""
    if name not in MODELS:
        raise ParameterError(f"there is no model {name!r}; {one_of(name, MODELS)}")
    return MODELS[name]


def names_of(ability: str) -> str:
    """The registered classes with an ability, for messages: those whose class attribute of this name is true."""
    return ", ".join(known.__name__ for known in usable() if getattr(known, ability, False))


def usable() -> Iterator[type[Recommender]]:
    """The registered classes that can be imported."""
    for name in MODELS:
        with suppress(ParameterError):  # of a broken plugin; asked for by name, it is an error
            yield MODELS[name]
