// A classic script, so that it runs before the first paint: no flash of the wrong theme.
(() => {
  const kept = localStorage.getItem("theme") ?? "auto";
  const dark = kept === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : kept === "dark";
  document.documentElement.setAttribute("data-theme", dark ? "dark" : "light");
})();
