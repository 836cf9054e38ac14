"""Pydantic models as content, context and metadata."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, Json, ValidationInfo, computed_field, field_validator

from scratchbus import Bus, NewObservation, Page, payload_of
from scratchbus.errors import InvalidField, UnknownType


@payload_of("risk_alert")
class FraudAlert(BaseModel):
    card: str
    amount: float


class Login(BaseModel):
    user: str


def test_a_model_round_trips_as_the_payload_of_its_type(page: Page):
    alert = FraudAlert(card="4711", amount=12.5)
    added = page.add(alert, source="detector", tags=["cards"])
    assert (added.type, added.content, added.tags) == ("risk_alert", '{"card":"4711","amount":12.5}', ["cards"])
    found = page.get(added.id)
    assert found is not None
    assert found.payload(FraudAlert) == added.payload(FraudAlert) == alert
    (event,) = page.history(added.id)
    assert event.payload(FraudAlert) == alert


def test_content_context_and_metadata_accept_models(page: Page):
    alert, login = FraudAlert(card="1", amount=1), Login(user="ada")
    added = page.add("observation", alert, source="detector", context=login, metadata=login)
    assert added.payload(FraudAlert) == alert
    assert added.context == added.metadata == {"user": "ada"}
    assert added.payload(Login, "context") == login
    later = page.update(added.id, content=FraudAlert(card="2", amount=2), metadata=Login(user="bob"))
    assert (later.payload(FraudAlert).card, later.payload(Login, "metadata").user) == ("2", "bob")
    updated = page.history(added.id)[-1]
    assert updated.payload(FraudAlert).card == "2"
    given = NewObservation(type="observation", content=alert, context=login, source="detector")
    (whole,) = page.add_many([given])
    assert (whole.payload(FraudAlert), whole.context) == (alert, {"user": "ada"})
    assert [each.id for each in page.list(context={"user": "ada"})] == [whole.id, added.id]


class Card(BaseModel):
    model_config = ConfigDict(extra="forbid")

    card_number: str = Field(alias="cardNumber")
    limit: Json[list[int]] = [1]

    @computed_field  # type: ignore[prop-decorator]  # mypy does not know computed properties
    @property
    def last_digits(self) -> str:
        return self.card_number[-2:]


class Order(BaseModel):
    amount: float

    @computed_field  # type: ignore[prop-decorator]  # mypy does not know computed properties
    @property
    def is_large(self) -> bool:
        return self.amount > 100


def test_a_model_with_aliases_and_computed_fields_is_read_back(page: Page):
    card = Card(cardNumber="4711")
    added = page.add("observation", card, context=card)
    assert added.payload(Card) == added.payload(Card, "context") == card
    assert added.context == {"cardNumber": "4711", "limit": "[1]"}


class Named(BaseModel):
    user_id: int = Field(0, serialization_alias="userId")


class Measured(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="strings")

    value: float
    unit: str | None = None


class Contextual(BaseModel):
    word: str

    @field_validator("word")
    @classmethod
    def known(cls, word: str, info: ValidationInfo) -> str:
        assert info.context is not None
        return str(info.context[word])


@pytest.mark.parametrize("place", ["content", "context"])
def test_a_model_that_is_written_under_other_names_keeps_the_names_that_it_reads(page: Page, place: str):
    fields: dict[str, Any] = {"content": "x", place: Named(user_id=3)}
    added = page.add("observation", **fields)
    assert added.payload(Named, "content" if place == "content" else "context").user_id == 3


def test_a_model_may_write_infinite_numbers_as_text(page: Page):
    added = page.add("observation", Measured(value=float("inf")))
    assert added.content == '{"value":"Infinity","unit":null}'
    assert added.payload(Measured).value == float("inf")


def test_a_model_that_cannot_be_read_back_alone_is_stored_by_its_names(page: Page):
    word = Contextual.model_validate({"word": "a"}, context={"a": "b"})
    assert page.add("observation", word).content == '{"word":"b"}'


def test_computed_fields_are_kept_if_the_model_can_be_read_with_them(page: Page):
    added = page.add("observation", Order(amount=500), context=Order(amount=500))
    assert added.payload(Order) == Order(amount=500)
    assert [each.id for each in page.list(context={"is_large": True})] == [added.id]


@pytest.mark.parametrize("amount", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("place", ["content", "context", "metadata"])
def test_a_number_that_json_lacks_is_refused_in_a_model(page: Page, place: str, amount: float):
    fields: dict[str, Any] = {"content": "x", place: Order(amount=amount)}
    with pytest.raises(InvalidField, match=rf"{place}.*(not a number in JSON|not JSON compliant)"):
        page.add("observation", **fields)
    assert page.list() == []


def test_a_subclass_keeps_the_type_of_its_model(page: Page):
    class CardFraud(FraudAlert):
        bank: str = "b"

    assert page.add(CardFraud(card="1", amount=1), source="d").type == "risk_alert"


def test_a_retry_with_an_equal_model_is_the_same_write(page: Page):
    first, again = (page.add(FraudAlert(card="1", amount=1), source="d", event_id="mine") for _ in range(2))
    assert first.id == again.id


def test_a_payload_mismatch_names_the_field_and_the_model(page: Page):
    text = page.add("observation", "plain text", source="d")
    other = page.add("observation", Login(user="ada"), source="d")
    with pytest.raises(InvalidField, match=r"content: .* does not fit FraudAlert: invalid json"):
        text.payload(FraudAlert)
    with pytest.raises(InvalidField, match=r"content\.card: .* does not fit FraudAlert: field required"):
        other.payload(FraudAlert)
    page.resolve(other.id)
    with pytest.raises(
        InvalidField, match=r"content: has no value here; only observations and `added` events have one"
    ):
        page.history(other.id)[-1].payload(Login)


def test_a_model_without_a_known_type_is_refused(page: Page, bus: Bus):
    with pytest.raises(InvalidField, match=r"Login is not the payload of a type; decorate it with @payload_of\(type\)"):
        page.add(Login(user="ada"), source="d")
    with pytest.raises(InvalidField, match="content: is given twice; it is the FraudAlert"):
        page.add(FraudAlert(card="1", amount=1), "text", source="d")

    @payload_of("no_such_type")
    class Lost(BaseModel):
        at: int = 1

    with pytest.raises(UnknownType):
        page.add(Lost(), source="d")
    assert page.list() == []
