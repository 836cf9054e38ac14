"""Pure folds of events into documents, and the indexes over them."""
