// Without this script everything is shown and the links jump to their part; with it they show that part alone.
(() => {
  const parts = [...document.querySelectorAll(".part")];
  const links = [...document.querySelectorAll(".chips a")];
  const choose = () => {
    const wanted = location.hash.slice(1);
    const chosen = wanted === "all" || parts.some((part) => part.id === wanted) ? wanted : "overview";
    for (const part of parts) part.hidden = chosen !== "all" && part.id !== chosen;
    for (const link of links) {
      const here = link.hash === "#" + chosen;
      link.setAttribute("aria-current", String(here));
      const line = link.closest("ul");
      if (here) line.scrollLeft = link.offsetLeft - line.offsetLeft - (line.clientWidth - link.offsetWidth) / 2;
    }
    if (wanted) document.getElementById(chosen).scrollIntoView();
  };
  addEventListener("hashchange", choose);
  choose();
})();
