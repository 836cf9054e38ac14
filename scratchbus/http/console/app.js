// The shell: header, banner, the view named in the URL, the time bar below it, dialogs and toasts.
import { html, render, useEffect, useLayoutEffect, useState } from "./lib/base.js";
import { write } from "./lib/api.js";
import { connection, whenLoaded } from "./lib/connection.js";
import { useKeys } from "./lib/keys.js";
import { isDenied, startStream } from "./lib/live.js";
import { go, link, route } from "./lib/route.js";
import { reveal } from "./lib/screen.js";
import { caller, page, pages, theme } from "./lib/state.js";
import { visible } from "./lib/text.js";
import { isPast } from "./lib/time.js";
import { Banner } from "./ui/banner.js";
import { closeDialog, Dialogs, openDialog } from "./ui/dialog.js";
import { KeyHelp } from "./ui/keyhelp.js";
import { choosePage } from "./ui/pagepicker.js";
import { Menu } from "./ui/menu.js";
import { messageOf } from "./ui/problem.js";
import { Silenced } from "./ui/silenced.js";
import { toast, Toasts } from "./ui/toast.js";
import { VIEWS } from "./views.js";
import Now from "./views/now.js";

const THEMES = [["auto", "As the system"], ["light", "Light"], ["dark", "Dark"]];
const viewOf = (name) => VIEWS.find((each) => each.name === name) ?? VIEWS[0];
const loaded = new Map([["now", Now]]);

function Shell() {
  const view = viewOf(route.value.view);
  useEffect(() => {
    document.title = `${view.title} · ${visible(page.value)} · scratchbus`;
  }, [view, page.value]);
  const { session, agent, scope } = route.value.params;
  useEffect(() => closeDialog, [view, page.value, session, agent, scope, isPast.value]); // such as by the back button
  useKeys([
    ...VIEWS.map(({ key, name, title }) => ({ keys: key, group: "Views", label: title, run: () => go({}, { view: name }) })),
    { keys: "?", group: "Everywhere", label: "List the shortcuts", run: () => openDialog((close) => html`<${KeyHelp} onClose=${close} />`) },
    { keys: "p", group: "Everywhere", label: "Choose the page", run: choosePage },
    { keys: "t", group: "Everywhere", label: "Light or dark", run: nextTheme },
  ]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), document.querySelector("main").focus())}>Skip to content</a>
    <${Header} view=${view} />
    <div class="banners" role="status"><${Banner} /></div>
    ${view.scope === "page" && view.name !== "what-if" && html`<${Silenced} />`}
    <main id="main" tabindex="-1" class=${isPast.value ? "past" : ""}><h1 class="visually-hidden">${view.title}</h1><${View} key=${keyOfView(view)} view=${view} /></main>
    <${TimeBar} scope=${view.scope} />
    <${Dialogs} />
    <${Toasts} />`;
}

function Header({ view }) {
  useEffect(() => reveal(document.querySelector("nav [aria-current]"), document.querySelector("nav")), [view, page.value]);
  return html`<header class="top">
    <a class="brand" aria-label="scratchbus" href=${link({}, "now")}><${Logo} /><span>scratchbus</span></a>
    <button type="button" class="page-button" title="Choose the page (p)" aria-haspopup="dialog"
      onClick=${choosePage}>
      <span class="visually-hidden">Page: </span><span class="page-name">${visible(page.value)}</span><${OpenCount} /></button>
    <nav aria-label="Views"><ul>${VIEWS.map(({ name, title }) => html`<li key=${name}>
      <a href=${link({}, name)} aria-current=${name === view.name ? "page" : undefined}>${title}</a></li>`)}</ul></nav>
    <div class="top-end">
      <${Connection} />
      <${Account} />
      <${Menu} label="Colours" title="Light or dark (t)" className="icon" align="right" items=${THEMES.map(([name, label]) =>
        ({ label, checked: theme.value === name, run: () => (theme.value = name) }))}>◐<//>
      <button type="button" class="icon" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)"
        onClick=${() => openDialog((close) => html`<${KeyHelp} onClose=${close} />`)}>?</button>
    </div>
  </header>`;
}

/** The name and the scopes of the caller, and the way to use another token. */
function Account() {
  if (!caller.value || connection.value.state === "signed-out") return null;
  const { name, scopes } = caller.value;
  return html`<${Menu} label="Signed in as ${visible(name)}" title="Signed in as ${visible(name)}" className="icon" align="right" items=${[
    { label: visible(name), hint: scopes.join(", ") || "no scope", disabled: true }, null, { label: "Sign out", run: signOut }]}>
    <svg viewBox="0 0 20 20" width="16" height="16" aria-hidden="true"><circle cx="10" cy="6.5" r="3.7" /><path d="M2.5 18a7.5 7.5 0 0 1 15 0z" /></svg><//>`;
}

/** Give the cookie up, and load the console again, so that nothing of what it showed stays. */
async function signOut() {
  try {
    await write("POST", "/logout");
    location.reload();
  } catch (problem) {
    toast(messageOf(problem), { kind: "error" });
  }
}

const Logo = () => html`<svg viewBox="0 0 20 20" width="20" height="20" aria-hidden="true">
  <rect x="2" y="3" width="16" height="3.2" rx="1.6" /><rect x="2" y="8.4" width="11" height="3.2" rx="1.6" opacity=".7" />
  <rect x="2" y="13.8" width="7" height="3.2" rx="1.6" opacity=".45" /></svg>`;

function OpenCount() {
  const open = pages.value.find((each) => each.name === page.value)?.open;
  return open === undefined ? null : html`<small title="open observations">${open.toLocaleString("en")}</small>`;
}

function Connection() {
  const { state } = connection.value;
  const text = { live: "Live", connecting: "Connecting", "server-away": "Server away", "engine-away": "Engine away", "signed-out": "Signed out" }[state];
  const isStill = state === "live" && isDenied.value;
  return html`<span class="connection ${state} ${isPast.value ? "in-past" : ""} ${isStill ? "is-still" : ""}"
    title=${isStill ? "This token may not read events, so changes appear only when you load again" : text}>
    <span class="dot"></span><span class="connection-text">${state !== "live" ? text : isPast.value ? "Past" : isStill ? "Not live" : text}</span></span>`;
}

/** A view of a page is a new one for each page, so that no page is shown with the rows of another. */
const keyOfView = ({ name, scope }) => (scope === "page" ? `${name} ${page.value}` : name);

/** The view itself, loaded the first time it is shown. */
function View({ view }) {
  const [Component, setComponent] = useState(() => loaded.get(view.name));
  useEffect(() => {
    if (Component) return;
    whenLoaded(Promise.all([view.load(), ...view.styles.map(loadStyles)]), ([module]) => {
      loaded.set(view.name, module.default);
      setComponent(() => module.default);
    });
  }, []);
  useLayoutEffect(() => applyStyles(view), [Component]);
  return Component ? html`<${Component} />` : null;
}

/** The time bar comes after the first paint: the histogram's library is larger than all the rest. */
function TimeBar({ scope }) {
  const [Component, setComponent] = useState(null);
  useEffect(() => {
    requestAnimationFrame(() => setTimeout(() => {
      whenLoaded(Promise.all([import("./ui/timebar.js"), loadStyles("vendor/uplot.css")]), ([module]) => setComponent(() => module.TimeBar));
    }));
  }, []);
  return html`<footer class="time" aria-label="Time">${Component && html`<${Component} scope=${scope} />`}</footer>`;
}

const styleAddress = (path) => new URL(path, import.meta.url).href;

/** Apply the style sheets of one view, and none of another: two views may use the same class name. */
function applyStyles(view) {
  const [own, all] = [view.styles, VIEWS.flatMap(({ styles }) => styles)].map((paths) => new Set(paths.map(styleAddress)));
  for (const sheet of document.styleSheets) if (all.has(sheet.href)) sheet.disabled = !own.has(sheet.href);
}

/** Load a style sheet once. */
function loadStyles(path) {
  const address = styleAddress(path);
  if ([...document.styleSheets].some((sheet) => sheet.href === address)) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const element = Object.assign(document.createElement("link"), { rel: "stylesheet", href: address, onload: resolve, onerror: () => reject(new Error(`Failed to fetch ${address}`)) });
    document.head.append(element);
  });
}

function nextTheme() {
  const names = THEMES.map(([name]) => name);
  theme.value = names[(names.indexOf(theme.value) + 1) % names.length];
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${Shell} />`, root);
startStream();
