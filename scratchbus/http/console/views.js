// The views: the name in the address, the title, the key that opens it, what the time bar steps through, and its module.
// `scope` is "page" or "bus": whose events the time bar shows. `styles` are its style sheets.

export const VIEWS = [
  { name: "now", title: "Now", key: "1", scope: "page", styles: [], load: () => import("./views/now.js") },
  { name: "story", title: "Story", key: "2", scope: "page", styles: ["ui/graph.css", "views/story.css"], load: () => import("./views/story.js") },
  { name: "what-if", title: "What if", key: "3", scope: "page", styles: ["views/what-if.css"], load: () => import("./views/what-if.js") },
  { name: "memory", title: "Memory", key: "4", scope: "bus", styles: ["ui/graph.css", "views/memory.css"], load: () => import("./views/memory.js") },
  { name: "log", title: "Log", key: "5", scope: "bus", styles: ["views/log.css"], load: () => import("./views/log.js") },
  { name: "operations", title: "Operations", key: "6", scope: "bus", styles: ["views/operations.css"], load: () => import("./views/operations.js") },
];
