"""Import and build what processes need, once, in the process that forks them."""

from __future__ import annotations

import gc
import importlib
import pkgutil
from collections.abc import Collection, Iterator
from typing import Any


def warm_up(*packages: str, but: Collection[str] = ()) -> None:
    """Import all modules of these packages and build what a process builds once, so that forks share it.

    `but` names modules and packages to leave out.
    """
    for name in packages:
        _import_all(name, but)
    for model in _models(importlib.import_module("pydantic").BaseModel):
        if model.__module__.startswith(packages):
            model.model_rebuild()  # build its schema, which is otherwise built on first use
    names = ("domain.registry_yaml", "settings")
    registry_yaml, settings = (importlib.import_module(f"scratchbus.{name}") for name in names)
    file = settings.shipped("observation_types.yaml")
    registry_yaml.parse_registry(file.read_text("utf-8"), str(file))  # imports jsonschema too
    gc.collect()
    gc.freeze()


def _import_all(package: str, but: Collection[str]) -> None:
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if module.name in but or module.name.endswith(".__main__"):
            continue
        if module.ispkg:
            _import_all(module.name, but)
        else:
            importlib.import_module(module.name)


def _models(base: type[Any]) -> Iterator[type[Any]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)
