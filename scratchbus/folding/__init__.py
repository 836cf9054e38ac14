"""Folding the log: documents, indexes and checkpoint are committed together, or not at all."""

from scratchbus.folding.fold import Documents, Fold, decode_all, needed
from scratchbus.folding.stretch import CHUNK, Folded, catch_up, fold_once, load_documents, page_in

__all__ = [
    "CHUNK",
    "Documents",
    "Fold",
    "Folded",
    "catch_up",
    "decode_all",
    "fold_once",
    "load_documents",
    "needed",
    "page_in",
]
