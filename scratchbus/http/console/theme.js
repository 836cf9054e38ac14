// A classic script, so that it runs before anything is drawn: no flash of the wrong colours.
(() => {
  const kept = localStorage.getItem("theme") ?? "auto";
  const dark = kept === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : kept === "dark";
  document.documentElement.setAttribute("data-theme", dark ? "dark" : "light");
})();
