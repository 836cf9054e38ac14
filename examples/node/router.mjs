// Suggests an action for each alert: a daemon in Node, without a dependency.
//
//   API=http://127.0.0.1:8765/api/v1 node router.mjs
//
// A durable subscription has its cursor on the bus. So it misses nothing while it is away, and when it is killed between
// an alert and its ack, it is given the alert again; the idempotency key makes the second suggestion the first.

const API = process.env.API ?? "http://127.0.0.1:8765/api/v1";
const PAGE = process.env.PAGE ?? "main";
const NAME = "node-router";

let pause = 1; // seconds to wait after the next failure; longer after each one in a row

async function call(method, path, body, headers = {}) {
  const sent = { method, headers: { "Content-Type": "application/json", ...headers }, body: JSON.stringify(body) };
  const answer = await fetch(API + path, sent);
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return text && JSON.parse(text);
}

function suggestion(alert) {
  const mount = alert.metadata?.mount;
  return mount ? `Delete old logs on ${mount}` : `Look into: ${alert.content}`;
}

async function handle({ event, position }, token) {
  const advice = await call("POST", `/pages/${encodeURIComponent(event.page)}/observations`, {
    type: "action_suggestion", content: suggestion(event), source: NAME, evidence: [event.subject], ttl: "1d",
  }, { "Idempotency-Key": `${NAME}-${event.id}` });
  await call("POST", `/subscriptions/${NAME}/ack`, { token, positions: [position] });
  console.log(`${event.content} -> ${advice.content}`);
}

async function run() {
  await call("PUT", `/subscriptions/${NAME}`, { types: ["risk_alert"], kinds: ["added"], pages: [PAGE] });
  console.log(`ready: alerts on ${PAGE}`);
  for (;;) {
    const { token, deliveries } = await call("POST", `/subscriptions/${NAME}/pull`, { max: 10, wait: "20s", lease: "1m" });
    for (const delivery of deliveries) await handle(delivery, token);
    pause = 1;
  }
}

for (;;) {
  try {
    await run();
  } catch (error) {
    console.error(`${error.message}; again in ${pause} s`);
    await new Promise((resolve) => setTimeout(resolve, 1_000 * pause));
    pause = Math.min(2 * pause, 30);
  }
}
