"""The media types of CloudEvents in JSON."""

from typing import Final

ONE: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
