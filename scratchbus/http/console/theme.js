// A classic script, so that it runs before the first paint: no flash of the wrong theme.
// It also says when the modules, which would say everything else, could not be loaded.
(() => {
  const kept = localStorage.getItem("theme") ?? "auto";
  const dark = kept === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : kept === "dark";
  document.documentElement.setAttribute("data-theme", dark ? "dark" : "light");
  addEventListener("error", ({ target }) => {
    if (target.type !== "module") return;
    const text = Object.assign(document.createElement("p"), { className: "problem", textContent: "The console could not be loaded. " });
    text.setAttribute("role", "alert");
    text.append(Object.assign(document.createElement("button"), { textContent: "Load again", onclick: () => location.reload() }));
    document.getElementById("app").append(text);
  }, true);
})();
