// The rendering library and signals, imported by every view from one place.
import { h } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export { render, Fragment, cloneElement, createContext } from "../vendor/preact.js";
export { useEffect, useLayoutEffect, useMemo, useRef, useState, useCallback, useId } from "../vendor/preact-hooks.js";
export { signal, computed, effect, batch, untracked, useSignal, useComputed, useSignalEffect } from "../vendor/signals.js";

/** Templates: html`<p class=${name}>${text}</p>`. Values become text and properties, never markup. */
export const html = htm.bind(h);
