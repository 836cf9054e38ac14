"""YAML files of a process, read strictly: every error names the file, line and key."""

from scratchbus.domain.yaml_nodes import Spot, compose

__all__ = ["Spot", "compose"]
