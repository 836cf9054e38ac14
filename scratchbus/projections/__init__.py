"""The pure folds: events to documents, and the indexes over them."""
