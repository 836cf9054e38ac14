"""An HTTP API with the same routes that does nothing: the cost of FastAPI and uvicorn themselves."""

from __future__ import annotations

import socket
import warnings
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Annotated, Any

import anyio
import uvicorn
from fastapi import Body, FastAPI
from pydantic import BaseModel
from pydantic.warnings import UnsupportedFieldAttributeWarning

from scratchbus import NewObservation, Observation, new_id
from scratchbus.http.main import configured
from tests.benchmarks.stage import given


def sample(number: int) -> Observation:
    """Return a new observation."""
    now = datetime.now(UTC)
    more: dict[str, Any] = {"context": {}, "metadata": {}, "owner": None, "source": "bench", "status": "active"}
    times = {"created_at": now, "updated_at": now, "expires_at": now + timedelta(days=7)}
    places = {"shard": 0, "ms": 1_795_386_035_607, "seq": number, "added_ms": 1_795_386_035_607, "added_seq": number}
    state = {"page": "seen", "version": 1, "priority": 50, "status_class": "open"}
    return Observation.model_validate({"id": new_id(), **given(number), **more, **times, **places, **state})


class Page(BaseModel):
    """A list of observations."""

    items: list[Observation]


LIMIT = 20

app = FastAPI()
_items = [sample(number) for number in range(1, LIMIT + 1)]


@app.post("/pages/{page}/observations", status_code=201)
async def add(page: str, new: Annotated[NewObservation, Body()]) -> Observation:
    """Validate an observation, and answer with one."""
    return _items[0]


@app.get("/pages/{page}/active")
async def active(page: str, limit: int = LIMIT) -> Page:
    """Answer with a page."""
    return Page(items=_items[:limit])


async def _serve() -> None:
    # FastAPI gives a body an alias, of which pydantic warns on stderr
    warnings.filterwarnings("ignore", category=UnsupportedFieldAttributeWarning)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)  # read by the process that started this one
        await uvicorn.Server(configured(app)).serve([listener])


if __name__ == "__main__":
    anyio.run(_serve, backend_options={"use_uvloop": find_spec("uvloop") is not None})
