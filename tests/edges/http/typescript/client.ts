// A client with the types that openapi-typescript generates from the OpenAPI document.

import type { components, operations } from "./schema";

type Observation = components["schemas"]["Observation"];
type NewObservation = components["schemas"]["NewObservation"];
type Patch = operations["update_observation"]["requestBody"]["content"]["application/json"];
type Problem = components["schemas"]["Problem"];
type Event = components["schemas"]["Event"];
type Listed = operations["list_observations"]["responses"][200]["content"]["application/json"];
type Added = operations["add_observation"]["responses"][201]["content"]["application/json"];
type Events = operations["list_events"]["responses"][200]["content"]["application/json"];
type Query = NonNullable<operations["list_observations"]["parameters"]["query"]>;

export class Refused extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail);
  }
}

export class Bus {
  constructor(private readonly url: string, private readonly token: string) {}

  add(page: string, observation: NewObservation, key: string): Promise<Added> {
    return this.send<Added>("POST", `/pages/${encodeURIComponent(page)}/observations`, observation, {
      "Idempotency-Key": key,
    });
  }

  async *list(page: string, query: Query = {}): AsyncGenerator<Observation> {
    let after: string | null | undefined = query.after;
    do {
      const words = new URLSearchParams({ ...(query.type ? { type: query.type } : {}), ...(after ? { after } : {}) });
      const found: Listed = await this.send<Listed>("GET", `/pages/${encodeURIComponent(page)}/observations?${words}`);
      yield* found.items;
      after = found.next;
    } while (after);
  }

  async *events(page: string): AsyncGenerator<Event> {
    const found = await this.send<Events>("GET", `/events?page=${encodeURIComponent(page)}`);
    yield* found.items;
  }

  private async send<T>(method: string, path: string, body?: object, headers: Record<string, string> = {}): Promise<T> {
    const sent = { "Content-Type": "application/json", Authorization: `Bearer ${this.token}`, ...headers };
    const answer = await fetch(`${this.url}/api/v1${path}`, { method, headers: sent, body: JSON.stringify(body) });
    if (!answer.ok) throw new Refused((await answer.json()) as Problem);
    return (await answer.json()) as T;
  }
}

export async function main(url: string, token: string, page: string): Promise<string[]> {
  const bus = new Bus(url, token);
  const added = await bus.add(page, { type: "risk_alert", content: "from TypeScript", tags: ["typed"], ttl: "1h" }, page);
  const found: string[] = [];
  for await (const observation of bus.list(page, { type: "risk_alert" })) found.push(observation.id);
  for await (const event of bus.events(page)) {
    if (event.kind === "added" && event.subject === added.id) found.push(event.content); // narrowed by its kind
  }
  return found;
}

// free objects take any fields, and may be read as such
export const withObjects: NewObservation = { type: "observation", content: "x", context: { task: { id: 1 } }, metadata: {} };
export const task = (observation: Observation): unknown => observation.context["task"];
export const triggers = (observation: Observation): string[] | undefined => observation.remind_on?.tags;
// a life is given as a `ttl` or as `expires_at`
export const withTtl: NewObservation = { type: "observation", content: "x", ttl: 60 };
export const withExpiry: NewObservation = { type: "observation", content: "x", expires_at: "2030-01-31T14:02:00Z" };
export const patch: Patch = { content: "y", metadata: { seen: true }, expires_at: null };
export const versions = (problem: Problem): (number | undefined)[] => [problem.expected, problem.actual];
export const hints = (problem: Problem): string[] => problem.known ?? problem.errors?.map((each) => each.field) ?? [];
export const status: components["schemas"]["TodoItem"]["status"] = "in_progress";

// @ts-expect-error a patch has no such field
export const misspeltPatch: Patch = { contnt: "y" };
// @ts-expect-error no item has this status
export const done: components["schemas"]["TodoItem"]["status"] = "done";
// @ts-expect-error content is required
export const withoutContent: NewObservation = { type: "risk_alert" };
// @ts-expect-error there is no such field
export const misspelt: NewObservation = { type: "risk_alert", content: "x", colour: "red" };
// @ts-expect-error a version is a number
export const version: Observation["version"] = "1";
